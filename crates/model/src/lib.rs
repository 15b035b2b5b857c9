//! The forward pass, sequence state and MTP head.
