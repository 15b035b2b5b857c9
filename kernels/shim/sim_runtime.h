// The simulator's run-time: a threadgroup's threads are fibres of one OS thread, which switch at
// barriers and SIMD operations. Everything about the running threadgroup lies in one region of
// 256 MiB of address space, aligned to its size: 1 MiB of state (SimWorker), then stacks of
// 128 KiB. A stack pointer therefore tells its region and its fibre, and nothing is thread-local.
#pragma once
#include "sim_api.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define SIM_REGION_BITS 28
#define SIM_SLOT_BITS 17
#define SIM_FIRST_SLOT 8u
#define SIM_THREADS_MAX 1024u
#define SIM_THREADGROUP_BYTES 32768u
#define SIM_ARRAYS_MAX 32u
#ifdef SIM_CHECKED
#define SIM_GAP 128u // between threadgroup arrays, so that running past one is seen
#else
#define SIM_GAP 0u
#endif
#define SIM_ARENA (SIM_THREADGROUP_BYTES + SIM_ARRAYS_MAX * (SIM_GAP + 16u))
#define SIM_BINDINGS_MAX 64u
#define SIM_ALL 0xffffffffu

struct SimSimdGroup;

// A fibre: a stack, and the thread that runs on it.
struct alignas(64) SimSlot {
    void* sp;
    SimSimdGroup* group;   // of the thread
    uint32_t thread, lane;
    uint32_t arrays;       // threadgroup arrays declared so far
    uint32_t array_bytes;  // their size
    uint32_t array_offset; // where the next one goes
};

// Values that lanes hand to one another. Two of them alternate, because a lane can be at the next
// operation before another has read the results of this one.
struct SimExchange {
    union {
        float f[32];
        uint32_t u[32];
        struct { float a[64], b[64], c[64], d[64]; } matrix;
    };
    float f_result;
    uint32_t u_result;
};

struct SimSimdGroup {
    uint32_t fresh, ready, at_simd, at_barrier, done; // masks of lanes
    uint32_t line;     // where lanes wait at a SIMD operation
    uint32_t parity;
    uint16_t slot[32];
    uint64_t synced;   // clock of the last meeting of these lanes
    uint64_t synced_device;
    uint32_t touches[32]; // see sim_matrix_touch
    uint32_t touched;
    SimExchange exchange[2];
};

struct SimShadow {
    uint64_t write, read, other_read;
};

struct SimWorker {
    SimDispatch* dispatch;
    void* home;
    uint64_t random; // 0: lanes go in order
    uint64_t clock;  // ticks at every meeting of lanes or threads
    uint64_t started;        // clock at the start of this threadgroup
    uint64_t barrier;        // clock of the last threadgroup barrier, per kind of memory
    uint64_t barrier_device;
    uint32_t n_simdgroups, current, runnable; // `runnable` is a mask of SIMD groups
    uint32_t barrier_line, barrier_flags;
    uint32_t stamp, position[3];
    uint32_t n_free, n_bindings, n_arrays;
    uint32_t faulted;
    uint8_t site[4096]; // checked: which binding the code at this address touched last
    SimBinding bindings[SIM_BINDINGS_MAX];
    uint16_t free[SIM_THREADS_MAX];
    SimSlot slots[SIM_THREADS_MAX];
    SimSimdGroup simdgroups[32];
    alignas(64) unsigned char arena[SIM_ARENA];
#ifdef SIM_CHECKED
    SimShadow shadow[SIM_ARENA / 4];
#endif
};
static_assert(sizeof(SimWorker) <= SIM_FIRST_SLOT << SIM_SLOT_BITS, "state of a region");

#ifdef __APPLE__
#define SIM_SYMBOL(name) "_" #name
#else
#define SIM_SYMBOL(name) #name
#endif
// Saves what a call must preserve, stores the stack pointer, and continues elsewhere.
extern "C" __attribute__((visibility("hidden"))) void sim_switch(void** from, void* to);
#if defined(__x86_64__)
asm(".text\n.p2align 4\n.globl " SIM_SYMBOL(sim_switch) "\n" SIM_SYMBOL(sim_switch) R"(:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
)");
#define SIM_SAVED 6
static inline uintptr_t sim_stack_pointer() {
    uintptr_t sp;
    asm("movq %%rsp, %0" : "=r"(sp));
    return sp;
}
#elif defined(__aarch64__)
asm(".text\n.p2align 4\n.globl " SIM_SYMBOL(sim_switch) "\n" SIM_SYMBOL(sim_switch) R"(:
    stp x29, x30, [sp, #-160]!
    stp x19, x20, [sp, #16]
    stp x21, x22, [sp, #32]
    stp x23, x24, [sp, #48]
    stp x25, x26, [sp, #64]
    stp x27, x28, [sp, #80]
    stp d8, d9, [sp, #96]
    stp d10, d11, [sp, #112]
    stp d12, d13, [sp, #128]
    stp d14, d15, [sp, #144]
    mov x9, sp
    str x9, [x0]
    mov sp, x1
    ldp x19, x20, [sp, #16]
    ldp x21, x22, [sp, #32]
    ldp x23, x24, [sp, #48]
    ldp x25, x26, [sp, #64]
    ldp x27, x28, [sp, #80]
    ldp d8, d9, [sp, #96]
    ldp d10, d11, [sp, #112]
    ldp d12, d13, [sp, #128]
    ldp d14, d15, [sp, #144]
    ldp x29, x30, [sp], #160
    ret
)");
static inline uintptr_t sim_stack_pointer() {
    uintptr_t sp;
    asm("mov %0, sp" : "=r"(sp));
    return sp;
}
#else
#error "the simulator knows x86-64 and aarch64"
#endif

static inline SimWorker* sim_worker(uintptr_t sp) {
    return reinterpret_cast<SimWorker*>(sp >> SIM_REGION_BITS << SIM_REGION_BITS);
}
static inline uint32_t sim_slot_of(uintptr_t sp) {
    return uint32_t((sp & ((uintptr_t(1) << SIM_REGION_BITS) - 1)) >> SIM_SLOT_BITS) -
           SIM_FIRST_SLOT;
}

// The running thread.
struct SimHere {
    SimWorker* w;
    SimSlot* slot;
    SimSimdGroup* group;
    uint32_t lane;
};
static inline SimHere sim_here() {
    const uintptr_t sp = sim_stack_pointer();
    SimWorker* w = sim_worker(sp);
    SimSlot* slot = &w->slots[sim_slot_of(sp)];
    return {w, slot, slot->group, slot->lane};
}
SIM_API uint32_t sim_lane() { return sim_here().lane; }

// Ends the dispatch with a message; the other fibres are abandoned. The first fault counts.
[[noreturn]] __attribute__((noinline, cold)) static void sim_fault(SimWorker* w, uintptr_t pc,
                                                                    uint32_t other_stamp,
                                                                    const char* format, ...) {
    SimDispatch* d = w->dispatch;
    if (__atomic_exchange_n(&d->stop, 1, __ATOMIC_ACQ_REL) == 0) {
        d->fault.pc = pc;
        d->fault.other_stamp = other_stamp;
        va_list args;
        va_start(args, format);
        const int n = vsnprintf(d->fault.text, sizeof d->fault.text, format, args);
        va_end(args);
        if (n >= 0 && size_t(n) < sizeof d->fault.text) {
            snprintf(d->fault.text + n, sizeof d->fault.text - size_t(n),
                     "; threadgroup [%u, %u, %u]", w->position[0], w->position[1], w->position[2]);
        }
    }
    w->faulted = 1;
    void* dead;
    sim_switch(&dead, w->home);
    __builtin_unreachable();
}

[[noreturn]] __attribute__((noinline, cold)) static void sim_diverged(SimWorker* w,
                                                                       SimSimdGroup* g) {
    if (g->at_simd) {
        uint32_t lanes = 0, barrier = 0, done = 0;
        lanes = uint32_t(__builtin_popcount(g->at_simd));
        barrier = uint32_t(__builtin_popcount(g->at_barrier));
        done = uint32_t(__builtin_popcount(g->done));
        sim_fault(w, 0, 0,
                  "divergence: %u of 32 lanes wait at the SIMD operation of line %u, %u wait at a "
                  "threadgroup barrier, %u have finished; SIMD group %u",
                  lanes, g->line, barrier, done, uint32_t(g - w->simdgroups));
    }
    uint32_t barrier = 0, done = 0;
    for (uint32_t i = 0; i < w->n_simdgroups; ++i) {
        barrier += uint32_t(__builtin_popcount(w->simdgroups[i].at_barrier));
        done += uint32_t(__builtin_popcount(w->simdgroups[i].done));
    }
    sim_fault(w, 0, 0,
              "divergence: %u of %u threads wait at the threadgroup barrier of line %u, %u have "
              "finished",
              barrier, w->n_simdgroups * 32, w->barrier_line, done);
}

// One of the set bits: the lowest, or a random one.
static inline uint32_t sim_pick(SimWorker* w, uint32_t mask) {
    if (w->random == 0) return uint32_t(__builtin_ctz(mask));
    w->random = w->random * 6364136223846793005u + 1442695040888963407u;
    const uint32_t r = uint32_t(w->random >> 59);
    const uint32_t turned = mask >> r | mask << (-r & 31);
    return (uint32_t(__builtin_ctz(turned)) + r) & 31;
}

static void sim_fibre();

// A new fibre for a thread that has not run yet.
static inline SimSlot* sim_start(SimWorker* w) {
    const uint32_t index = w->free[--w->n_free];
    SimSlot* slot = &w->slots[index];
    // Stacks begin at different cache lines, or they would all compete for the same sets.
    uintptr_t top = uintptr_t(w) + (uintptr_t(SIM_FIRST_SLOT + index + 1) << SIM_SLOT_BITS) -
                    64 - uintptr_t(index % 61) * 320;
    uintptr_t* sp = reinterpret_cast<uintptr_t*>(top);
#if defined(__x86_64__)
    *--sp = 0; // keeps the alignment of a called function
    *--sp = reinterpret_cast<uintptr_t>(&sim_fibre);
    for (int i = 0; i < SIM_SAVED; ++i) *--sp = 0;
#else
    sp -= 20;
    for (int i = 0; i < 20; ++i) sp[i] = 0;
    sp[1] = reinterpret_cast<uintptr_t>(&sim_fibre);
#endif
    slot->sp = sp;
    return slot;
}

static inline void sim_assign(SimWorker* w, SimSlot* slot, SimSimdGroup* g, uint32_t lane) {
    g->fresh &= ~(1u << lane);
    g->slot[lane] = uint16_t(slot - w->slots);
    slot->group = g;
    slot->thread = uint32_t(g - w->simdgroups) * 32 + lane;
    slot->lane = lane;
    slot->arrays = slot->array_bytes = slot->array_offset = 0;
}

// Called when no lane of the current SIMD group can go on. Finds another group that can, after
// opening the barrier if all threads are there; null when all threads have finished.
__attribute__((noinline)) static SimSimdGroup* sim_next_simdgroup(SimWorker* w) {
    SimSimdGroup* g = &w->simdgroups[w->current];
    if (g->at_simd) sim_diverged(w, g);
    w->runnable &= ~(1u << w->current);
    if (w->runnable == 0) {
        uint32_t at_barrier = 0, done = 0;
        for (uint32_t i = 0; i < w->n_simdgroups; ++i) {
            at_barrier += w->simdgroups[i].at_barrier == SIM_ALL;
            done += w->simdgroups[i].done == SIM_ALL;
        }
        if (done == w->n_simdgroups) return nullptr;
        if (at_barrier != w->n_simdgroups) sim_diverged(w, g);
        ++w->clock;
        if (w->barrier_flags & 2) w->barrier = w->clock;
        if (w->barrier_flags & 1) w->barrier_device = w->clock;
        for (uint32_t i = 0; i < w->n_simdgroups; ++i) {
            SimSimdGroup* other = &w->simdgroups[i];
            other->at_barrier = 0;
            other->ready = SIM_ALL;
            if (w->barrier_flags & 2) other->synced = w->clock;
            if (w->barrier_flags & 1) other->synced_device = w->clock;
        }
        w->runnable = w->n_simdgroups == 32 ? SIM_ALL : (1u << w->n_simdgroups) - 1;
        w->barrier_line = 0;
    }
    w->current = sim_pick(w, w->runnable);
    return &w->simdgroups[w->current];
}

// Runs others until this fibre is chosen again.
__attribute__((noinline)) static void sim_yield(SimWorker* w, SimSlot* me) {
    SimSimdGroup* g = &w->simdgroups[w->current];
    if ((g->fresh | g->ready) == 0) g = sim_next_simdgroup(w);
    const uint32_t lane = sim_pick(w, g->fresh | g->ready);
    const uint32_t bit = 1u << lane;
    SimSlot* to;
    if (g->ready & bit) {
        g->ready &= ~bit;
        to = &w->slots[g->slot[lane]];
        if (to == me) return;
    } else {
        to = sim_start(w);
        sim_assign(w, to, g, lane);
    }
    sim_switch(&me->sp, to->sp);
}

static void sim_matrix_check(SimWorker* w, SimSimdGroup* g);

// What a fibre runs: threads, one after the other, until one of them has waited.
static void sim_fibre() {
    const uintptr_t sp = sim_stack_pointer();
    SimWorker* w = sim_worker(sp);
    SimSlot* me = &w->slots[sim_slot_of(sp)];
    for (;;) {
        w->dispatch->kernel(w->dispatch, w->position, me->thread);
        SimSimdGroup* g = &w->simdgroups[w->current];
        g->done |= 1u << me->lane;
        if (g->done == SIM_ALL && g->touched) sim_matrix_check(w, g);
        void* dead;
        if ((g->fresh | g->ready) == 0) {
            g = sim_next_simdgroup(w);
            if (g == nullptr) sim_switch(&dead, w->home);
        }
        const uint32_t lane = sim_pick(w, g->fresh | g->ready);
        const uint32_t bit = 1u << lane;
        if (g->fresh & bit) {
            sim_assign(w, me, g, lane);
            continue;
        }
        g->ready &= ~bit;
        w->free[w->n_free++] = uint16_t(me - w->slots);
        sim_switch(&dead, w->slots[g->slot[lane]].sp);
    }
}

SIM_API void sim_threadgroup_barrier(uint32_t flags, uint32_t line) {
    const SimHere h = sim_here();
    if (h.w->barrier_line == 0) {
        h.w->barrier_line = line;
        h.w->barrier_flags = flags;
    } else if (h.w->barrier_line != line) {
        sim_fault(h.w, 0, 0, "divergence: threads wait at the barriers of lines %u and %u",
                  h.w->barrier_line, line);
    }
    h.w->barrier_flags &= flags;
    h.group->at_barrier |= 1u << h.lane;
    sim_yield(h.w, h.slot);
}

// Waits until all lanes are at this operation. True for the last of them, which works out the
// result for all and then calls sim_release.
static inline bool sim_arrive(const SimHere& h, uint32_t line) {
    SimSimdGroup* g = h.group;
    if (g->at_simd == 0) g->line = line;
    if (g->line != line) {
        sim_fault(h.w, 0, 0,
                  "divergence: lanes of SIMD group %u are at the SIMD operations of lines %u and %u",
                  uint32_t(g - h.w->simdgroups), g->line, line);
    }
    g->at_simd |= 1u << h.lane;
    if (g->at_simd == SIM_ALL) return true;
    sim_yield(h.w, h.slot);
    return false;
}
static inline void sim_release(const SimHere& h, uint32_t flags) {
    SimSimdGroup* g = h.group;
    if (g->touched) sim_matrix_check(h.w, g);
    g->at_simd = 0;
    g->ready = ~(1u << h.lane);
    g->parity ^= 1;
    ++h.w->clock;
    if (flags & 2) g->synced = h.w->clock;
    if (flags & 1) g->synced_device = h.w->clock;
}

SIM_API void sim_simdgroup_barrier(uint32_t flags, uint32_t line) {
    const SimHere h = sim_here();
    if (sim_arrive(h, line)) sim_release(h, flags);
}

// Sums go pairwise over distances 16, 8, 4, 2, 1: the order of a butterfly of shuffles.
#define SIM_REDUCE(name, type, lanes, result, combine)                                             \
    SIM_API type name(type x, uint32_t line) {                                                     \
        const SimHere h = sim_here();                                                              \
        SimExchange* e = &h.group->exchange[h.group->parity];                                      \
        e->lanes[h.lane] = x;                                                                      \
        if (sim_arrive(h, line)) {                                                                 \
            for (int n = 16; n > 0; n /= 2) {                                                      \
                for (int i = 0; i < n; ++i) {                                                      \
                    const type a = e->lanes[i], b = e->lanes[i + n];                               \
                    e->lanes[i] = combine;                                                         \
                }                                                                                  \
            }                                                                                      \
            e->result = e->lanes[0];                                                               \
            sim_release(h, 3);                                                                     \
        }                                                                                          \
        return e->result;                                                                          \
    }
SIM_REDUCE(sim_sum_f32, float, f, f_result, a + b)
// A NaN loses, as with fmax.
SIM_REDUCE(sim_max_f32, float, f, f_result, __builtin_fmaxf(a, b))
SIM_REDUCE(sim_min_f32, float, f, f_result, __builtin_fminf(a, b))
SIM_REDUCE(sim_sum_u32, uint32_t, u, u_result, a + b)
SIM_REDUCE(sim_max_u32, uint32_t, u, u_result, a > b ? a : b)
SIM_REDUCE(sim_min_u32, uint32_t, u, u_result, a < b ? a : b)
#undef SIM_REDUCE

SIM_API uint32_t sim_exclusive_sum_u32(uint32_t x, uint32_t line) {
    const SimHere h = sim_here();
    SimExchange* e = &h.group->exchange[h.group->parity];
    e->u[h.lane] = x;
    if (sim_arrive(h, line)) {
        uint32_t sum = 0;
        for (int i = 0; i < 32; ++i) {
            const uint32_t next = sum + e->u[i];
            e->u[i] = sum;
            sum = next;
        }
        sim_release(h, 3);
    }
    return e->u[h.lane];
}

static inline uint32_t sim_from_lane(uint32_t x, uint32_t from, uint32_t line) {
    const SimHere h = sim_here();
    SimExchange* e = &h.group->exchange[h.group->parity];
    if (from >= 32) sim_fault(h.w, 0, 0, "line %u: there is no lane %u", line, from);
    e->u[h.lane] = x;
    if (sim_arrive(h, line)) sim_release(h, 3);
    return e->u[from];
}
SIM_API uint32_t sim_shuffle(uint32_t x, uint32_t lane, uint32_t line) {
    return sim_from_lane(x, lane, line);
}
SIM_API uint32_t sim_shuffle_xor(uint32_t x, uint32_t mask, uint32_t line) {
    return sim_from_lane(x, sim_here().lane ^ mask, line);
}

// Where a lane's two elements of an 8 x 8 matrix are: row * 8 + column of the first.
static inline uint32_t sim_matrix_place(uint32_t lane) {
    const uint32_t row = (lane / 4 & 4) + lane / 2 % 4;
    const uint32_t column = (lane / 4 & 2) * 2 + lane % 2 * 2;
    return row * 8 + column;
}
// Eight floats at any address of a float.
typedef float SimRow __attribute__((vector_size(32), aligned(4)));
SIM_API SimPair sim_matrix_multiply(SimPair a, SimPair b, SimPair c, uint32_t line) {
    const SimHere h = sim_here();
    auto& m = h.group->exchange[h.group->parity].matrix;
    const uint32_t at = sim_matrix_place(h.lane);
    m.a[at] = a.x;
    m.a[at + 1] = a.y;
    m.b[at] = b.x;
    m.b[at + 1] = b.y;
    m.c[at] = c.x;
    m.c[at + 1] = c.y;
    if (sim_arrive(h, line)) {
        const SimRow* rows = reinterpret_cast<const SimRow*>(m.b);
        for (int row = 0; row < 8; ++row) {
            SimRow sum = reinterpret_cast<const SimRow*>(m.c)[row];
            for (int k = 0; k < 8; ++k) sum += rows[k] * m.a[row * 8 + k];
            reinterpret_cast<SimRow*>(m.d)[row] = sum;
        }
        sim_release(h, 3);
    }
    return {m.d[at], m.d[at + 1]};
}
SIM_API void sim_matrix_touch() {
    const SimHere h = sim_here();
    ++h.group->touches[h.lane];
    h.group->touched = 1;
}
__attribute__((noinline)) static void sim_matrix_check(SimWorker* w, SimSimdGroup* g) {
    for (int i = 1; i < 32; ++i) {
        if (g->touches[i] != g->touches[0]) {
            sim_fault(w, 0, 0,
                      "divergence: lane 0 of SIMD group %u did %u simdgroup_matrix loads and "
                      "stores, lane %d did %u",
                      uint32_t(g - w->simdgroups), g->touches[0], i, g->touches[i]);
        }
    }
    memset(g->touches, 0, sizeof g->touches);
    g->touched = 0;
}

SIM_API void* sim_threadgroup_array(size_t bytes, size_t align, const char* name) {
    const SimHere h = sim_here();
    SimSlot* s = h.slot;
    const uint32_t round = align < 4 ? 3 : uint32_t(align) - 1;
    s->array_bytes = (s->array_bytes + round) & ~round;
    const uint32_t offset = (s->array_offset + SIM_GAP + round) & ~round;
    if (bytes > SIM_THREADGROUP_BYTES - s->array_bytes || s->arrays == SIM_ARRAYS_MAX) {
        sim_fault(h.w, 0, 0, "threadgroup array %s of %zu bytes, after %u bytes of others: a "
                  "threadgroup has %u bytes", name, bytes, s->array_bytes, SIM_THREADGROUP_BYTES);
    }
    s->array_bytes += uint32_t(bytes);
    s->array_offset = offset + uint32_t(bytes);
    unsigned char* array = h.w->arena + offset;
    const uint32_t index = s->arrays++;
    if (index >= h.w->n_arrays) {
        // The first thread of the threadgroup to come here: what was left by another is NaN now.
        h.w->n_arrays = index + 1;
        memset(array, 0xff, bytes);
        SimBinding* b = &h.w->bindings[h.w->dispatch->n_bindings + index];
        *b = SimBinding{uintptr_t(array), bytes, uintptr_t(h.w->arena), nullptr, nullptr, name, 1, 1};
        h.w->n_bindings = h.w->dispatch->n_bindings + index + 1;
    }
    return array;
}

static void sim_run_threadgroup(SimWorker* w, uint32_t index) {
    SimDispatch* d = w->dispatch;
    w->position[0] = index % d->groups[0];
    w->position[1] = index / d->groups[0] % d->groups[1];
    w->position[2] = index / d->groups[0] / d->groups[1];
    w->stamp = d->first_stamp + index;
    w->random = d->seed == 0 ? 0 : (d->seed ^ index * 0x9e3779b97f4a7c15u) | 1;
    w->started = w->barrier = w->barrier_device = ++w->clock;
    w->n_simdgroups = d->threads / 32;
    w->runnable = w->n_simdgroups == 32 ? SIM_ALL : (1u << w->n_simdgroups) - 1;
    w->barrier_line = 0;
    w->n_arrays = 0;
    w->n_bindings = d->n_bindings;
    for (uint32_t i = 0; i < w->n_simdgroups; ++i) {
        SimSimdGroup* g = &w->simdgroups[i];
        g->fresh = SIM_ALL;
        g->ready = g->at_simd = g->at_barrier = g->done = g->parity = 0;
        g->synced = g->synced_device = w->clock;
        if (g->touched) memset(g->touches, 0, sizeof g->touches);
        g->touched = 0;
    }
    for (uint32_t i = 0; i < d->threads; ++i) w->free[i] = uint16_t(d->threads - 1 - i);
    w->n_free = d->threads;
    w->current = sim_pick(w, w->runnable);
    SimSimdGroup* g = &w->simdgroups[w->current];
    const uint32_t lane = sim_pick(w, g->fresh);
    SimSlot* first = sim_start(w);
    sim_assign(w, first, g, lane);
    sim_switch(&w->home, first->sp);
}

// Runs threadgroups of a dispatch until none is left. Several OS threads call it at once, each
// with its own region.
extern "C" __attribute__((visibility("default"))) void sim_run(void* region, SimDispatch* d) {
    SimWorker* w = static_cast<SimWorker*>(region);
    w->dispatch = d;
    w->faulted = 0;
    for (uint32_t i = 0; i < d->n_bindings; ++i) w->bindings[i] = d->bindings[i];
    if (d->n_bindings == 0) w->bindings[0].len = 0;
    memset(w->site, 0, sizeof w->site);
    const uint64_t n = uint64_t(d->groups[0]) * d->groups[1] * d->groups[2];
    // A random order is i -> i * step + seed modulo n, with a step that has no factor in common.
    uint64_t step = 1;
    if (d->seed != 0 && n > 2) {
        for (step = d->seed % n;; ++step) {
            uint64_t a = n, b = step;
            while (b != 0) { const uint64_t r = a % b; a = b; b = r; }
            if (a == 1) break;
        }
    }
    while (!w->faulted && !__atomic_load_n(&d->stop, __ATOMIC_RELAXED)) {
        const uint64_t i = __atomic_fetch_add(&d->next, 1, __ATOMIC_RELAXED);
        if (i >= n) break;
        const uint64_t index = d->seed == 0 ? i : (i * step + d->seed % n) % n;
        sim_run_threadgroup(w, uint32_t(index));
    }
}

#ifndef SIM_CHECKED
SIM_API uint32_t sim_atomic_load(const uint32_t* p) {
    return __atomic_load_n(p, __ATOMIC_RELAXED);
}
SIM_API void sim_atomic_store(uint32_t* p, uint32_t x) { __atomic_store_n(p, x, __ATOMIC_RELAXED); }
SIM_API uint32_t sim_atomic_add(uint32_t* p, uint32_t x) {
    return __atomic_fetch_add(p, x, __ATOMIC_RELAXED);
}
#endif
