// Chooses the kernel table for the processor at hand.
#include <cstring>

#include "kernels.hpp"

namespace deepinfer_cpu {
namespace {

bool runs_avx2() {
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
}

bool runs_avx512() {
    return runs_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl");
}

}  // namespace

const Kernels* choose(const char* isa) {
    const bool any = isa[0] == '\0';
    if ((any || !std::strcmp(isa, "avx512")) && runs_avx512()) return &kAvx512;
    if ((any || !std::strcmp(isa, "avx2")) && runs_avx2()) return &kAvx2;
    if (any || !std::strcmp(isa, "generic")) return &kGeneric;
    return nullptr;
}

}  // namespace deepinfer_cpu
