// Plain views of what the kernels read and write. Nothing here owns memory or checks anything: bind/ has checked sizes
// and the ids of vocabularies; slots, blocks and pool rows are the scheduler's.
#pragma once

#include <cstdint>

namespace deepinfer_cpu {

// The values of deepinfer_core.interfaces.ops.WeightFormat, in the order in which the wrappers number them.
enum class WeightFormat : int { F32 = 0, BF16 = 1, FP8 = 2, FP4 = 3 };

// The values of deepinfer_core.interfaces.ops.RowFormat, likewise.
enum class RowFormat : int { F32 = 0, BF16 = 1, FP8_E8M0_32 = 2, FP4_E4M3_16 = 3, FP4_E8M0_32 = 4 };

// A logical [out, in] matrix in its stored format; see WeightFormat in the core for the shapes of data and scale.
struct Weight {
    const uint8_t* data;
    const uint8_t* scale;  // E8M0 bytes, or null
    WeightFormat format;
    int64_t out;
    int64_t in;
    int64_t stack = 1;  // matrices one behind the other
};

// Row metadata of a step; each array has one int32 for each row.
struct Rows {
    const int32_t* slot;
    const int32_t* position;
    const int32_t* first_position;
    const int32_t* first_row;
    const int32_t* last_position;
    const int32_t* floor;
    int64_t count;
};

// One layer's sliding-window keys: rings by slot, then the step's own rows.
struct Window {
    const uint8_t* pool;
    RowFormat format;
    int64_t base;
    int64_t fresh_base;
    int64_t ring_rows;
    int64_t window;
};

// Compressed entries in blocks.
struct Paged {
    const uint8_t* pool;
    RowFormat format;
    const int32_t* block_table;
    int64_t max_blocks;
    int64_t block_rows;
    int64_t ratio;
};

}  // namespace deepinfer_cpu
