// What the simulator's run-time gives to kernels, and the structs it shares with the host
// (crates/device/src/sim/ffi.rs has the same in Rust).
//
// In an unchecked module everything is one translation unit and these functions are inlined. In a
// checked module the kernels are compiled with access callbacks and the run-time is not, so they
// are two.
#pragma once
#include <stddef.h>
#include <stdint.h>

#ifdef SIM_CHECKED
#define SIM_API extern "C" __attribute__((visibility("hidden")))
#else
#define SIM_API static inline
#endif

// Who touched four bytes of device memory last. Stamps are explained in sim_check.h.
struct SimCell {
    uint64_t write, read, other_read;
};

// Bytes that a kernel may touch.
struct SimBinding {
    uintptr_t lo, len;
    uintptr_t base;       // of the buffer; `defined` and `cells` count from here
    uint8_t* defined;     // one byte for four: bit n says that byte n is defined; null: all are
    SimCell* cells;       // null: nothing in this barrier interval writes here
    const char* name;
    uint32_t writable, kind;
};

struct SimFault {
    uintptr_t pc;         // of the access, 0 if unknown
    uint32_t other_stamp; // threadgroup stamp of a conflicting dispatch, 0 if none
    char text[1004];
};

struct SimDispatch {
    void (*kernel)(const SimDispatch*, const uint32_t* position, uint32_t thread);
    void* const* buffers;
    const uint32_t* params;
    const SimBinding* bindings;
    uint64_t seed;
    uint32_t n_bindings, groups[3], threads;
    uint32_t first_stamp;    // of threadgroup 0; the others follow
    uint32_t interval_stamp; // of the first threadgroup since the last Command::Barrier
    uint32_t next;           // atomic: threadgroups handed out
    uint32_t stop;           // atomic: set by the first fault
    SimFault fault;
};

// Lines are those of the caller: lanes that meet must be at the same one.
SIM_API void* sim_threadgroup_array(size_t bytes, size_t align, const char* name);
SIM_API void sim_threadgroup_barrier(uint32_t flags, uint32_t line);
SIM_API void sim_simdgroup_barrier(uint32_t flags, uint32_t line);
SIM_API float sim_sum_f32(float x, uint32_t line);
SIM_API float sim_max_f32(float x, uint32_t line);
SIM_API float sim_min_f32(float x, uint32_t line);
SIM_API uint32_t sim_sum_u32(uint32_t x, uint32_t line);
SIM_API uint32_t sim_max_u32(uint32_t x, uint32_t line);
SIM_API uint32_t sim_min_u32(uint32_t x, uint32_t line);
SIM_API uint32_t sim_exclusive_sum_u32(uint32_t x, uint32_t line);
SIM_API uint32_t sim_shuffle(uint32_t x, uint32_t lane, uint32_t line);
SIM_API uint32_t sim_shuffle_xor(uint32_t x, uint32_t mask, uint32_t line);
SIM_API uint32_t sim_lane();
// a b + c for 8 x 8 matrices, two elements a lane; by value, so that they stay in registers.
struct SimPair {
    float x, y;
};
SIM_API SimPair sim_matrix_multiply(SimPair a, SimPair b, SimPair c, uint32_t line);
// Counts an operation of which every lane must do the same number, without a meeting.
SIM_API void sim_matrix_touch();
SIM_API uint32_t sim_atomic_load(const uint32_t* p);
SIM_API void sim_atomic_store(uint32_t* p, uint32_t x);
SIM_API uint32_t sim_atomic_add(uint32_t* p, uint32_t x);
