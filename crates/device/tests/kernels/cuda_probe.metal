// For cuda_probe: the cost of a launch, and a fault.
kernel void empty(device float* out [[buffer(0)]]) {}

struct OutsideParams { uint far; };

// Writes far outside its buffer.
kernel void outside(device float* out [[buffer(0)]], constant OutsideParams& p [[buffer(1)]],
                    uint tid [[thread_index_in_threadgroup]])
{
    out[ulong(p.far) * 4096 + tid] = 1.0f;
}
