// Every load and store of a checked kernel comes here: kernels are compiled with the
// instrumentation of ThreadSanitizer, and these are its callbacks. They know
//
//   bounds    the slices of the dispatch and the threadgroup arrays, byte for byte
//   contents  which bytes nobody has written yet
//   order     who touched four bytes last, and what meetings of threads lie between
//
// A meeting ticks the threadgroup's clock. An access is stamped with the clock; an earlier one of
// another thread is ordered before it if its stamp is older than the last meeting of both: of their
// SIMD group, or of the threadgroup. Threadgroups have numbers ("stamps") that grow over the whole
// command list, so that in device memory an older number than the interval's first means a
// Command::Barrier lies between. Words, from the high bits:
//
//   device memory       threadgroup stamp 28, clock 22, thread 10, bytes 4
//   threadgroup memory  clock 46, thread 10, bytes 4, defined bytes 4 (in `write` only)
//
// A stamp names the bytes of the granule that were touched, so that neighbouring 16-bit values
// do not conflict. Atomics are exempt, and order nothing. Only the last writer and two readers are
// remembered, so that a race over halves can be missed in one order of the threads and found in
// another.
//
// Not seen: an overrun from one threadgroup array that lands in another, or from one bound slice
// in another; the alignment of vectors that clang copies as bytes, and before version 16 those
// copies themselves.
#pragma once
#include "sim_runtime.h"
#include <dlfcn.h>

#define SIM_INLINE static inline __attribute__((always_inline))
#define SIM_CLOCK_MAX ((1u << 22) - 1)
#define SIM_CONSTANTS (SIM_BINDINGS_MAX - 1) // binding of the module's constants
enum { SIM_DEVICE = 0, SIM_THREADGROUP = 1, SIM_MODULE = 2 };

static const char* sim_verb(bool write) { return write ? "writes" : "reads"; }

// Which binding has these bytes; a fault if none.
__attribute__((noinline)) static SimBinding* sim_find(SimWorker* w, uint32_t thread, uintptr_t p,
                                                      size_t size, bool write, uintptr_t pc) {
    SimBinding* nearest = nullptr;
    SimBinding* constant = nullptr;
    uintptr_t least = UINTPTR_MAX;
    for (uint32_t i = 0; i < w->n_bindings; ++i) {
        SimBinding* b = &w->bindings[i];
        if (p >= b->lo && p - b->lo < b->len && b->len - (p - b->lo) >= size) {
            if (!write || b->writable) return b;
            constant = b;
        }
        const uintptr_t distance = p < b->lo ? b->lo - p : p - b->lo < b->len ? 0
                                                         : p - b->lo - b->len;
        if (distance < least) {
            least = distance;
            nearest = b;
        }
    }
    if (constant != nullptr) {
        sim_fault(w, pc, 0, "thread %u writes %zu bytes at offset %zu of %s, which is device const",
                  thread, size, size_t(p - constant->lo), constant->name);
    }
    Dl_info there, here;
    if (dladdr(reinterpret_cast<void*>(p), &there) != 0 &&
        dladdr(reinterpret_cast<void*>(&sim_run), &here) != 0 &&
        there.dli_fbase == here.dli_fbase) {
        if (write) sim_fault(w, pc, 0, "thread %u writes to a constant", thread);
        SimBinding* b = &w->bindings[SIM_CONSTANTS];
        *b = SimBinding{p & ~uintptr_t(4095), 8192, 0, nullptr, nullptr, "constants", 0, SIM_MODULE};
        return b;
    }
    const bool in_region = ((p ^ uintptr_t(w)) >> SIM_REGION_BITS) == 0;
    if (in_region && p - uintptr_t(w->arena) >= SIM_ARENA) {
        sim_fault(w, pc, 0, "thread %u %s %zu bytes of another thread's stack", thread,
                  sim_verb(write), size);
    }
    if (nearest == nullptr) {
        sim_fault(w, pc, 0, "out of bounds: thread %u %s %zu bytes at %p", thread,
                  sim_verb(write), size, reinterpret_cast<void*>(p));
    }
    sim_fault(w, pc, 0, "out of bounds: thread %u %s %zu bytes at offset %lld of %s, %s of %zu bytes",
              thread, sim_verb(write), size, (long long)(p - nearest->lo), nearest->name,
              nearest->kind == SIM_THREADGROUP ? "a threadgroup array" : "a slice",
              size_t(nearest->len));
}

[[noreturn]] __attribute__((noinline, cold)) static void sim_undefined(SimWorker* w,
                                                                        uint32_t thread,
                                                                        const SimBinding* b,
                                                                        uintptr_t p, uint32_t mask,
                                                                        uintptr_t pc) {
    sim_fault(w, pc, 0, "thread %u reads %d bytes at offset %zu of %s that nobody has written",
              thread, __builtin_popcount(mask), size_t(p - b->lo), b->name);
}

[[noreturn]] __attribute__((noinline, cold)) static void
sim_race(SimWorker* w, uint32_t thread, const SimBinding* b, uintptr_t p, bool write,
         bool other_write, uint32_t other_stamp, uint32_t other_thread, uintptr_t pc) {
    SimDispatch* d = w->dispatch;
    const size_t offset = p > b->lo ? p - b->lo : 0;
    if (other_stamp != 0 && other_stamp < d->first_stamp) {
        sim_fault(w, pc, other_stamp,
                  "no barrier between dispatches: thread %u %s offset %zu of %s, which thread %u "
                  "of another dispatch %s", thread, sim_verb(write), offset, b->name, other_thread,
                  other_write ? "wrote" : "read");
    }
    if (other_stamp != 0 && other_stamp != w->stamp) {
        sim_fault(w, pc, 0,
                  "race between threadgroups: thread %u %s offset %zu of %s, which thread %u of "
                  "threadgroup number %u %s", thread, sim_verb(write), offset, b->name,
                  other_thread, other_stamp - d->first_stamp, other_write ? "wrote" : "read");
    }
    sim_fault(w, pc, 0,
              "race: thread %u %s offset %zu of %s, which thread %u %s, without a barrier between",
              thread, sim_verb(write), offset, b->name, other_thread,
              other_write ? "wrote" : "read");
}

// Threadgroup memory: `old` is live (of this threadgroup's time), and unordered with `thread`.
SIM_INLINE bool sim_unordered(const SimWorker* w, uint32_t thread, uint64_t old, uint32_t mask) {
    const uint64_t clock = old >> 18;
    const uint32_t other = uint32_t(old >> 8) & 1023;
    if (clock < w->started || other == thread || (uint32_t(old >> 4) & mask) == 0) return false;
    const uint64_t since =
        other / 32 == thread / 32 ? w->simdgroups[thread / 32].synced : w->barrier;
    return clock >= since;
}

template <bool Write>
SIM_INLINE void sim_threadgroup_granule(SimWorker* w, uint32_t thread, const SimBinding* b,
                                        uintptr_t p, uint32_t mask, uintptr_t pc) {
    SimShadow* cell = &w->shadow[(p - uintptr_t(w->arena)) >> 2];
    const uint64_t old = cell->write;
    const uint32_t defined = old >> 18 >= w->started ? uint32_t(old) & 15 : 0;
    const uint64_t now = w->clock << 18 | uint64_t(thread) << 8 | mask << 4;
    if (sim_unordered(w, thread, old, mask)) {
        sim_race(w, thread, b, p, Write, true, 0, uint32_t(old >> 8) & 1023, pc);
    }
    if (Write) {
        const uint64_t reads[2] = {cell->read, cell->other_read};
        for (const uint64_t read : reads) {
            if (sim_unordered(w, thread, read, mask)) {
                sim_race(w, thread, b, p, true, false, 0, uint32_t(read >> 8) & 1023, pc);
            }
        }
        const bool again = old >> 8 == now >> 8;
        cell->write = now | (again ? old & 0xf0 : 0) | defined | mask;
    } else {
        if (~defined & mask) sim_undefined(w, thread, b, p, mask, pc);
        const uint64_t first = cell->read;
        if (first >> 8 == now >> 8) {
            cell->read = first | now;
        } else if ((uint32_t(first >> 8) & 1023) == thread || first >> 18 < w->barrier) {
            cell->read = now;
        } else {
            cell->other_read = now;
        }
    }
}

// Device memory: a fault if `old` and this access are not ordered.
template <bool Write>
SIM_INLINE void sim_check_order(SimWorker* w, uint32_t thread, const SimBinding* b, uintptr_t p,
                                uint32_t mask, uint64_t old, bool other_write, uintptr_t pc) {
    if ((uint32_t(old) & mask) == 0) return;
    const uint32_t stamp = uint32_t(old >> 36);
    if (stamp < w->dispatch->interval_stamp) return;
    const uint32_t other = uint32_t(old >> 4) & 1023;
    if (stamp == w->stamp) {
        if (other == thread) return;
        const uint64_t clock = old >> 14 & SIM_CLOCK_MAX;
        const uint64_t since = other / 32 == thread / 32
                                   ? w->simdgroups[thread / 32].synced_device
                                   : w->barrier_device;
        if (clock < since - w->started || clock == SIM_CLOCK_MAX) return;
    }
    sim_race(w, thread, b, p, Write, other_write, stamp, other, pc);
}

template <bool Write>
SIM_INLINE void sim_device_granule(SimWorker* w, uint32_t thread, const SimBinding* b, uintptr_t p,
                                   uint32_t mask, uintptr_t pc) {
    const uintptr_t index = (p - b->base) >> 2;
    if (b->defined != nullptr) {
        uint8_t* defined = &b->defined[index];
        const uint32_t known = __atomic_load_n(defined, __ATOMIC_RELAXED);
        if (!Write) {
            if (~known & mask) sim_undefined(w, thread, b, p, mask, pc);
        } else if (mask == 15) {
            __atomic_store_n(defined, 15, __ATOMIC_RELAXED);
        } else if (~known & mask) {
            __atomic_fetch_or(defined, mask, __ATOMIC_RELAXED);
        }
    }
    if (b->cells == nullptr) return;
    SimCell* cell = &b->cells[index];
    const uint64_t age = w->clock - w->started;
    const uint64_t now = uint64_t(w->stamp) << 36 |
                         (age < SIM_CLOCK_MAX ? age : SIM_CLOCK_MAX) << 14 |
                         uint64_t(thread) << 4 | mask;
    const uint64_t old = __atomic_load_n(&cell->write, __ATOMIC_RELAXED);
    sim_check_order<Write>(w, thread, b, p, mask, old, true, pc);
    const uint64_t read = __atomic_load_n(&cell->read, __ATOMIC_RELAXED);
    if (Write) {
        sim_check_order<true>(w, thread, b, p, mask, read, false, pc);
        const uint64_t other = __atomic_load_n(&cell->other_read, __ATOMIC_RELAXED);
        sim_check_order<true>(w, thread, b, p, mask, other, false, pc);
        const bool again = old >> 4 == now >> 4;
        __atomic_store_n(&cell->write, now | (again ? old & 15 : 0), __ATOMIC_RELAXED);
    } else if (read >> 4 == now >> 4) {
        __atomic_store_n(&cell->read, read | now, __ATOMIC_RELAXED);
    } else if (read >> 36 < w->dispatch->interval_stamp ||
               (read >> 36 == w->stamp && (uint32_t(read >> 4) & 1023) == thread)) {
        __atomic_store_n(&cell->read, now, __ATOMIC_RELAXED);
    } else {
        __atomic_store_n(&cell->other_read, now, __ATOMIC_RELAXED);
    }
}

template <bool Write>
SIM_INLINE void sim_granule(SimWorker* w, uint32_t thread, const SimBinding* b, uintptr_t p,
                            uint32_t mask, uintptr_t pc) {
    if (b->kind == SIM_THREADGROUP) {
        sim_threadgroup_granule<Write>(w, thread, b, p, mask, pc);
    } else {
        sim_device_granule<Write>(w, thread, b, p, mask, pc);
    }
}

SIM_INLINE SimBinding* sim_bind(SimWorker* w, uint32_t thread, uintptr_t p, size_t size,
                                bool write, uintptr_t pc) {
    // Code at one address nearly always touches one argument.
    uint8_t* site = &w->site[(pc ^ pc >> 12) & (sizeof w->site - 1)];
    SimBinding* b = &w->bindings[*site];
    const uintptr_t offset = p - b->lo;
    if (offset >= b->len || b->len - offset < size || (write && !b->writable)) {
        b = sim_find(w, thread, p, size, write, pc);
        *site = uint8_t(b - w->bindings);
    }
    return b;
}

// `Size` is a constant, and the address a multiple of it unless the compiler says otherwise.
template <uint32_t Size, bool Write, bool Aligned>
SIM_INLINE void sim_access(const void* address, uintptr_t pc) {
    const uintptr_t sp = sim_stack_pointer(), p = reinterpret_cast<uintptr_t>(address);
    if (((p ^ sp) >> SIM_SLOT_BITS) == 0) return; // its own stack
    SimWorker* w = sim_worker(sp);
    const uint32_t thread = w->slots[sim_slot_of(sp)].thread;
    const SimBinding* b = sim_bind(w, thread, p, Size, Write, pc);
    if (Aligned && (p & (Size - 1)) != 0) {
        sim_fault(w, pc, 0, "misaligned: thread %u %s %u bytes at offset %zu of %s", thread,
                  sim_verb(Write), Size, size_t(p - b->lo), b->name);
    }
    if (b->kind != SIM_THREADGROUP && b->cells == nullptr && b->defined == nullptr) return;
    if (Aligned && Size >= 4) {
        for (uint32_t i = 0; i < Size; i += 4) sim_granule<Write>(w, thread, b, p + i, 15, pc);
    } else if (Aligned) {
        sim_granule<Write>(w, thread, b, p, ((1u << Size) - 1) << (p & 3), pc);
    } else {
        for (uint32_t i = 0; i < Size; ++i) {
            sim_granule<Write>(w, thread, b, p + i, 1u << ((p + i) & 3), pc);
        }
    }
}

template <bool Write>
__attribute__((noinline)) static void sim_access_range(const void* address, size_t size,
                                                       uintptr_t pc) {
    const uintptr_t sp = sim_stack_pointer(), p = reinterpret_cast<uintptr_t>(address);
    if (size == 0 || ((p ^ sp) >> SIM_SLOT_BITS) == 0) return;
    SimWorker* w = sim_worker(sp);
    const uint32_t thread = w->slots[sim_slot_of(sp)].thread;
    const SimBinding* b = sim_bind(w, thread, p, size, Write, pc);
    for (size_t i = 0; i < size; ++i) {
        sim_granule<Write>(w, thread, b, p + i, 1u << ((p + i) & 3), pc);
    }
}

// Atomics are exempt from order.
SIM_INLINE void sim_atomic_access(const uint32_t* address, bool read, bool write, uintptr_t pc) {
    const uintptr_t sp = sim_stack_pointer(), p = reinterpret_cast<uintptr_t>(address);
    SimWorker* w = sim_worker(sp);
    const uint32_t thread = w->slots[sim_slot_of(sp)].thread;
    const SimBinding* b = sim_bind(w, thread, p, 4, write, pc);
    if (b->kind == SIM_THREADGROUP) {
        SimShadow* cell = &w->shadow[(p - uintptr_t(w->arena)) >> 2];
        const bool live = cell->write >> 18 >= w->started;
        if (read && (!live || (cell->write & 15) != 15)) sim_undefined(w, thread, b, p, 15, pc);
        if (write) cell->write = (live ? cell->write : w->started << 18) | 15;
    } else if (b->defined != nullptr) {
        uint8_t* defined = &b->defined[(p - b->base) >> 2];
        if (read && __atomic_load_n(defined, __ATOMIC_RELAXED) != 15) {
            sim_undefined(w, thread, b, p, 15, pc);
        }
        if (write) __atomic_store_n(defined, 15, __ATOMIC_RELAXED);
    }
}
SIM_API uint32_t sim_atomic_load(const uint32_t* p) {
    sim_atomic_access(p, true, false, uintptr_t(__builtin_return_address(0)));
    return __atomic_load_n(p, __ATOMIC_RELAXED);
}
SIM_API void sim_atomic_store(uint32_t* p, uint32_t x) {
    sim_atomic_access(p, false, true, uintptr_t(__builtin_return_address(0)));
    __atomic_store_n(p, x, __ATOMIC_RELAXED);
}
SIM_API uint32_t sim_atomic_add(uint32_t* p, uint32_t x) {
    sim_atomic_access(p, true, true, uintptr_t(__builtin_return_address(0)));
    return __atomic_fetch_add(p, x, __ATOMIC_RELAXED);
}

#define SIM_PC uintptr_t(__builtin_return_address(0))
#define SIM_CALLBACKS(size)                                                                        \
    SIM_API void __tsan_read##size(void* p) { sim_access<size, false, true>(p, SIM_PC); }          \
    SIM_API void __tsan_write##size(void* p) { sim_access<size, true, true>(p, SIM_PC); }          \
    SIM_API void __tsan_unaligned_read##size(void* p) { sim_access<size, false, false>(p, SIM_PC); } \
    SIM_API void __tsan_unaligned_write##size(void* p) { sim_access<size, true, false>(p, SIM_PC); } \
    SIM_API void __tsan_read_write##size(void* p) {                                                \
        sim_access<size, false, true>(p, SIM_PC);                                                  \
        sim_access<size, true, true>(p, SIM_PC);                                                   \
    }                                                                                              \
    SIM_API void __tsan_unaligned_read_write##size(void* p) {                                      \
        sim_access<size, false, false>(p, SIM_PC);                                                 \
        sim_access<size, true, false>(p, SIM_PC);                                                  \
    }
SIM_CALLBACKS(1)
SIM_CALLBACKS(2)
SIM_CALLBACKS(4)
SIM_CALLBACKS(8)
SIM_CALLBACKS(16)
SIM_API void __tsan_read_range(void* p, size_t n) { sim_access_range<false>(p, n, SIM_PC); }
SIM_API void __tsan_write_range(void* p, size_t n) { sim_access_range<true>(p, n, SIM_PC); }
SIM_API void* __tsan_memcpy(void* to, const void* from, size_t n) {
    sim_access_range<false>(from, n, SIM_PC);
    sim_access_range<true>(to, n, SIM_PC);
    return memcpy(to, from, n);
}
SIM_API void* __tsan_memmove(void* to, const void* from, size_t n) {
    sim_access_range<false>(from, n, SIM_PC);
    sim_access_range<true>(to, n, SIM_PC);
    return memmove(to, from, n);
}
SIM_API void* __tsan_memset(void* to, int byte, size_t n) {
    sim_access_range<true>(to, n, SIM_PC);
    return memset(to, byte, n);
}
SIM_API void __tsan_init() {}
SIM_API void __tsan_func_entry(void*) {}
SIM_API void __tsan_func_exit() {}
SIM_API void __tsan_vptr_update(void**, void*) {}
SIM_API void __tsan_vptr_read(void**) {}
