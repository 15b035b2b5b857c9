//! SIMD primitives of the CPU forward pass.
