// The Python face of attention and the indexer.
#include "arguments.hpp"

namespace deepinfer_cpu {

void bind_attention(py::class_<Table>& c) {
    c.def(
        "sparse_attention",
        [](const Table& k, Address q, int64_t heads, int64_t dim, const RowsTuple& r, const WindowTuple& w,
           const std::optional<PagedTuple>& entries, Address selected, int64_t top_k, Address sink, float scale,
           Address out) {
            const Paged view = entries ? paged(*entries) : Paged{};
            k->sparse_attention(at<const float>(q), heads, dim, rows(r), window(w), entries ? &view : nullptr,
                                at<const int32_t>(selected), top_k, at<const float>(sink), scale, at<float>(out));
        },
        Release());
    c.def(
        "index_scores",
        [](const Table& k, Address q, Address weights, int64_t heads, int64_t dim, const PagedTuple& keys,
           const RowsTuple& r, int64_t num_entries, Address scores) {
            k->index_scores(at<const float>(q), at<const float>(weights), heads, dim, paged(keys), rows(r), num_entries,
                            at<float>(scores));
        },
        Release());
    c.def(
        "select_blocks",
        [](const Table& k, Address scores, int64_t n, int64_t num_entries, Address visible, int64_t block_size,
           int64_t top_blocks, Address keep) {
            k->select_blocks(at<const float>(scores), n, num_entries, at<const int32_t>(visible), block_size,
                             top_blocks, at<uint8_t>(keep));
        },
        Release());
    c.def(
        "select_topk",
        [](const Table& k, Address scores, int64_t n, int64_t num_entries, int64_t top_k, Address blocks,
           int64_t num_blocks, int64_t block_size, Address selected) {
            k->select_topk(at<const float>(scores), n, num_entries, top_k, at<const uint8_t>(blocks), num_blocks,
                           block_size, at<int32_t>(selected));
        },
        Release());
}

}  // namespace deepinfer_cpu
