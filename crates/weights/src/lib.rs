//! Checkpoints of Qwen3.6-35B-A3B: formats, canonical tensor names, quantisation layouts.
