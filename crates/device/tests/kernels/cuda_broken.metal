// Does not compile, in line 5 of this file: the error must say so.
kernel void broken(device float* out [[buffer(0)]],   // a comment on a line of its own
                   uint tid [[thread_index_in_threadgroup]])
{
    out[tid] = undeclared;
}
