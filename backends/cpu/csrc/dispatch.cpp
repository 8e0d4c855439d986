// Chooses the kernel table for the processor at hand.
#include <cstring>
#include <vector>

#include "kernels.hpp"

namespace deepinfer_cpu {
namespace {

// The tables that this processor runs, best first.
std::vector<const Kernels*> runnable() {
    std::vector<const Kernels*> tables;
#if defined(__x86_64__)
    const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
    const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                        __builtin_cpu_supports("avx512vl");
    if (avx512) tables.push_back(&kAvx512);
    if (avx2) tables.push_back(&kAvx2);
#endif
    tables.push_back(&kGeneric);
    return tables;
}

}  // namespace

const Kernels* choose(const char* isa) {
    for (const Kernels* table : runnable())
        if (isa[0] == '\0' || !std::strcmp(isa, table->isa)) return table;
    return nullptr;
}

}  // namespace deepinfer_cpu
