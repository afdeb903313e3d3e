// Paged attention: which thread computes what, and the walk over the cache's blocks.
//
// A task is one KV head of a few query tokens against a range of keys. A decode's keys are split
// among several tasks, so that one long sequence keeps all threads busy; these leave their
// unnormalized results in memory of their own, merged in a phase after.
#pragma once

#include <vector>

#include "team.h"
#include "tiles.h"

namespace quire {

constexpr int kKeysPerTile = 32;
constexpr int64_t kKeysPerSplit = 256;  // a multiple of the tile

// What the rows of one KV head share.
struct AttentionShape {
    int64_t head_dim;
    float scale, softcap;
    int64_t window;  // 0: all keys
};

// What a row has seen of some keys: the greatest score, and sums relative to it.
struct RowState {
    float peak, total;
    float* result;  // [head_dim]
};

// One thread's working memory.
struct AttentionScratch {
    std::vector<float> query, copies, scores, result, peak, total, decay;  // of one split
    std::vector<float> sum_results;
    std::vector<RowState> sums;  // of all splits so far

    void reserve(int64_t rows, int64_t head_dim) {
        query.resize(rows * head_dim);
        result.resize(rows * head_dim);
        scores.resize(rows * kKeysPerTile);
        copies.resize(2 * head_dim * kKeysPerTile);
        peak.resize(rows);
        total.resize(rows);
        decay.resize(rows);
        sum_results.resize(rows * head_dim);
        sums.resize(rows);
    }
};

struct AttentionTask {
    const int32_t* table;  // block ids of the sequence
    int64_t token;         // of the slice: the first query's
    int64_t num_queries;
    int64_t start;  // position of the first query
    int64_t kv_head;
    int64_t key_begin, key_end;
    int64_t partial;  // where the unmerged result of its one split lies; -1: it sees all splits
};

// Adjacent partial results to be made one.
struct AttentionMerge {
    int64_t token, num_queries, kv_head, partial, splits;
};

// A phase of attention: queries and results are [tokens, stride], head after head.
struct Attention {
    AttentionShape shape;
    const QuireCache* cache;
    int64_t layer, heads_per_kv_head;
    const float* query;
    int64_t query_stride;
    float* out;
    int64_t out_stride;
    float* partials;

    int64_t partial_size(int64_t rows) const { return rows * (shape.head_dim + 2); }
};

inline int64_t cache_offset(const QuireCache& cache, int64_t block, int64_t layer, int64_t value,
                            int64_t kv_head, int64_t slot) {
    const int64_t plane = ((block * cache.num_layers + layer) * 2 + value) * cache.num_kv_heads;
    return ((plane + kv_head) * cache.block_size + slot) * cache.head_dim;
}

// All tasks, then the merges; the scratch is the calling thread's.
void attend_all(Worker& worker, const Attention& a, const std::vector<AttentionTask>& tasks,
                const std::vector<AttentionMerge>& merges, AttentionScratch& scratch);

}  // namespace quire
