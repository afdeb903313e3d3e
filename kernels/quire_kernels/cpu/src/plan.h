// What a slice of a step computes, the same for all layers.
//
// A step is taken in slices of up to 256 tokens, each through all layers, so that memory for
// activations does not grow with the step. A chunk cut in two is still right: the first part's
// keys are in the cache before the second part looks for them.
#pragma once

#include "attention.h"

namespace quire {

constexpr int64_t kSliceTokens = 256;
constexpr int64_t kRowsPerTask = 48;       // query rows that fill the registers well
constexpr int64_t kQueriesPerTask = 16;

// A run of tokens of one chunk.
struct Run {
    const int32_t* table;
    int64_t token;  // of the slice
    int64_t count;
    int64_t start;  // position of the first
    bool samples;   // whether its last token is to be sampled from
};

struct Slice {
    std::vector<Run> runs;
    std::vector<int32_t> ids;                // by token
    std::vector<int64_t> positions;          // by token
    std::vector<const int32_t*> tables;      // by token
    std::vector<AttentionTask> tasks;
    std::vector<AttentionMerge> merges;
    int64_t partial_floats = 0;

    int64_t tokens() const { return static_cast<int64_t>(ids.size()); }
};

inline void add_run(Slice& slice, const Run& run, const int32_t* ids) {
    slice.runs.push_back(run);
    for (int64_t i = 0; i < run.count; ++i) {
        slice.ids.push_back(ids[i]);
        slice.positions.push_back(run.start + i);
        slice.tables.push_back(run.table);
    }
}

inline std::vector<Slice> cut_into_slices(const QuireBatch& batch) {
    std::vector<Slice> slices;
    const int32_t* ids = batch.token_ids;
    for (int32_t chunk = 0; chunk < batch.num_chunks; ++chunk) {
        const int32_t* table = batch.block_tables + batch.rows[chunk] * batch.block_table_stride;
        for (int64_t done = 0; done < batch.num_tokens[chunk];) {
            if (slices.empty() || slices.back().tokens() == kSliceTokens) slices.emplace_back();
            Slice& slice = slices.back();
            const int64_t left = batch.num_tokens[chunk] - done;
            const int64_t count = std::min(left, kSliceTokens - slice.tokens());
            const bool samples = count == left && batch.samples[chunk] != 0;
            add_run(slice, {table, slice.tokens(), count, batch.starts[chunk] + done, samples},
                    ids + done);
            done += count;
        }
        ids += batch.num_tokens[chunk];
    }
    return slices;
}

// The last queries of a run see the most keys: they come first. A decode's splits of keys are tasks
// of their own; other tasks take the same splits one after another.
inline void plan_run(Slice& slice, const Run& run, int64_t queries, int64_t kv_heads,
                     int64_t rows_per_query, int64_t head_dim) {
    for (int64_t first = (run.count - 1) / queries * queries; first >= 0; first -= queries) {
        const int64_t count = std::min(queries, run.count - first);
        const int64_t keys = run.start + first + count;
        const int64_t share = run.count == 1 ? kKeysPerSplit : keys;
        const int64_t splits = (keys + share - 1) / share;
        const int64_t partial_size = count * rows_per_query * (head_dim + 2);
        for (int64_t head = 0; head < kv_heads; ++head) {
            const int64_t partial = splits > 1 ? slice.partial_floats : -1;
            if (splits > 1) {
                slice.merges.push_back({run.token + first, count, head, partial, splits});
                slice.partial_floats += splits * partial_size;
            }
            for (int64_t i = 0; i < splits; ++i) {
                slice.tasks.push_back({run.table, run.token + first, count, run.start + first, head,
                                       i * share, std::min((i + 1) * share, keys),
                                       splits > 1 ? partial + i * partial_size : -1});
            }
        }
    }
}

inline void plan_attention(Slice& slice, int64_t num_heads, int64_t kv_heads, int64_t head_dim) {
    const int64_t rows_per_query = num_heads / kv_heads;
    const int64_t queries =
        std::min(kQueriesPerTask, std::max<int64_t>(1, kRowsPerTask / rows_per_query));
    for (const Run& run : slice.runs)
        plan_run(slice, run, queries, kv_heads, rows_per_query, head_dim);
}

}  // namespace quire
