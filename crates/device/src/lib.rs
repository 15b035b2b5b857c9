//! Memory, command encoding and kernel table of the GPU-like devices.
