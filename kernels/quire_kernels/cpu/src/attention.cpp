// Paged attention, task by task.
#include <type_traits>
#include <utility>

#include "attention_tile.h"

namespace quire {
namespace {

template <class Element>
struct Tile {
    TilePointers<Element> keys, values;
    int64_t begin, count;
};

// Find the keys from `begin` on, up to `end` or a tile full; the places past them are the first.
template <class Element>
Tile<Element> find_tile(const Attention& a, const AttentionTask& task, int64_t begin, int64_t end) {
    const QuireCache& cache = *a.cache;
    const int64_t head_dim = cache.head_dim;
    const int64_t to_values = int64_t{cache.num_kv_heads} * cache.block_size * head_dim;
    Tile<Element> tile;
    tile.begin = begin;
    tile.count = std::min<int64_t>(end - begin, kKeysPerTile);
    int64_t index = begin / cache.block_size, slot = begin % cache.block_size;
    for (int64_t i = 0; i < tile.count; ++index, slot = 0) {  // block by block
        const auto* key = static_cast<const typename Element::Type*>(cache.data) +
                          cache_offset(cache, task.table[index], a.layer, 0, task.kv_head, slot);
        for (; slot < cache.block_size && i < tile.count; ++slot, ++i, key += head_dim) {
            tile.keys.at[i] = key;
            tile.values.at[i] = key + to_values;
        }
    }
    for (int64_t i = tile.count; i < kKeysPerTile; ++i) {
        tile.keys.at[i] = tile.keys.at[0];
        tile.values.at[i] = tile.values.at[0];
    }
    return tile;
}

// Start reading a tile. A block's keys are 2 KB or so at a place of their own, too little for the
// processor to see where it goes on.
template <class Element>
void prefetch_tile(const Tile<Element>& tile, int64_t head_dim) {
    constexpr int64_t kLine = 64 / sizeof(typename Element::Type);
    for (int64_t i = 0; i < tile.count; ++i) {
        for (int64_t d = 0; d < head_dim; d += kLine) {
            __builtin_prefetch(tile.keys.at[i] + d);
            __builtin_prefetch(tile.values.at[i] + d);
        }
    }
}

// Copy a tile as fp32.
template <class Element>
Tile<F32> copy_tile(const Tile<Element>& tile, int64_t head_dim, AttentionScratch& s) {
    Tile<F32> copy{{}, {}, tile.begin, tile.count};
    float* to = s.copies.data();
    for (int64_t i = 0; i < kKeysPerTile; ++i) {
        for (auto [from, place] : {std::pair{tile.keys.at[i], &copy.keys.at[i]},
                                   std::pair{tile.values.at[i], &copy.values.at[i]}}) {
            *place = to;
            for (int64_t d = 0; d < head_dim; d += 8) store(to + d, Element::load8(from + d));
            to += head_dim;
        }
    }
    return copy;
}

// Hide keys that a row must not see: those after it, before its window, and past the range.
void mask_tile(const Attention& a, const AttentionTask& task, int64_t begin, int64_t rows,
               float* scores) {
    for (int64_t row = 0; row < rows; ++row, scores += kKeysPerTile) {
        const int64_t position = task.start + row / a.heads_per_kv_head;
        const int64_t last = std::min(position + 1, task.key_end) - begin;
        const int64_t first = a.shape.window > 0 ? position + 1 - a.shape.window - begin : 0;
        if (first <= 0 && last >= kKeysPerTile) continue;
        for (int64_t key = 0; key < kKeysPerTile; ++key)
            if (key < first || key >= last) scores[key] = kMasked;
    }
}

void cap_scores(float softcap, int64_t count, float* scores) {
    for (int64_t i = 0; i < count; i += 8)
        store(scores + i, softcap * hyperbolic_tangent(load(scores + i) / softcap));
}

// Calls `three` for three rows at a time, then `one` for the others.
template <class Three, class One>
void by_rows(int64_t rows, Three&& three, One&& one) {
    int64_t row = 0;
    for (; row + 3 <= rows; row += 3) three(row);
    for (; row < rows; ++row) one(row);
}

void soften(const Attention& a, const AttentionTask& task, int64_t begin, int64_t rows,
            AttentionScratch& s) {
    float* scores = s.scores.data();
    if (a.shape.softcap > 0.0f) cap_scores(a.shape.softcap, rows * kKeysPerTile, scores);
    mask_tile(a, task, begin, rows, scores);
    for (int64_t row = 0; row < rows; ++row)
        soften_row(scores + row * kKeysPerTile, s.peak[row], s.total[row], s.decay[row]);
}

template <class Element>
void attend_tile(const Attention& a, const AttentionTask& task, const Tile<Element>& tile,
                 int64_t rows, AttentionScratch& s) {
    const int64_t head_dim = a.shape.head_dim;
    const auto score = [&]<int kRows>(int64_t row) {
        score_rows<Element, kRows>(s.query.data() + row * head_dim, tile.keys, tile.count, head_dim,
                                   s.scores.data() + row * kKeysPerTile);
    };
    const auto weigh = [&]<int kRows>(int64_t row) {
        weigh_all<Element, kRows>(s.scores.data() + row * kKeysPerTile, tile.values, tile.count,
                                  head_dim, s.decay.data() + row, s.result.data() + row * head_dim);
    };
    by_rows(rows, [&](int64_t row) { score.template operator()<3>(row); },
            [&](int64_t row) { score.template operator()<1>(row); });
    soften(a, task, tile.begin, rows, s);
    by_rows(rows, [&](int64_t row) { weigh.template operator()<3>(row); },
            [&](int64_t row) { weigh.template operator()<1>(row); });
}

// See the keys from `begin` to `end`, in tiles.
template <class Element>
void attend_keys(const Attention& a, const AttentionTask& task, int64_t begin, int64_t end,
                 int64_t rows, AttentionScratch& s) {
    for (auto tile = find_tile<Element>(a, task, begin, end);;) {
        begin += kKeysPerTile;
        const bool is_last = begin >= end;
        const auto next = is_last ? tile : find_tile<Element>(a, task, begin, end);
        if (!is_last) prefetch_tile(next, a.shape.head_dim);
        if (std::is_same_v<Element, F32> || rows <= kFewRows) attend_tile(a, task, tile, rows, s);
        else attend_tile(a, task, copy_tile(tile, a.shape.head_dim, s), rows, s);
        if (is_last) return;
        tile = next;
    }
}

// See the keys of one split, after those of the splits before.
void attend_split(const Attention& a, const AttentionTask& task, int64_t begin, int64_t end,
                  int64_t rows, AttentionScratch& s) {
    std::fill_n(s.peak.begin(), rows, kNothingSeen);
    std::fill_n(s.total.begin(), rows, 0.0f);
    std::fill_n(s.result.begin(), rows * a.shape.head_dim, 0.0f);
    const int64_t oldest = a.shape.window > 0 ? task.start + 1 - a.shape.window : 0;
    begin = std::max(begin, oldest / kKeysPerTile * kKeysPerTile);
    if (begin >= end) return;
    switch (a.cache->dtype) {
        case QUIRE_F32: return attend_keys<F32>(a, task, begin, end, rows, s);
        case QUIRE_F16: return attend_keys<F16>(a, task, begin, end, rows, s);
        default: return attend_keys<BF16>(a, task, begin, end, rows, s);
    }
}

// The head of `out` or of the query that a row of the task stands for.
int64_t row_offset(const Attention& a, int64_t token, int64_t kv_head, int64_t row,
                   int64_t stride) {
    const int64_t head = kv_head * a.heads_per_kv_head + row % a.heads_per_kv_head;
    return (token + row / a.heads_per_kv_head) * stride + head * a.shape.head_dim;
}

// Add what a row has seen of further keys. In the order of the keys, and for every 256 of them:
// then it does not matter who computed which.
void fold(RowState& sum, const RowState& part, int64_t head_dim) {
    const float peak = std::max(sum.peak, part.peak);
    const float before = std::exp(sum.peak - peak), now = std::exp(part.peak - peak);
    sum.peak = peak;
    sum.total = sum.total * before + part.total * now;
    for (int64_t d = 0; d < head_dim; d += 8) {
        const f8 decayed = load(sum.result + d) * before;
        store(sum.result + d, multiply_add(load(part.result + d), splat(now), decayed));
    }
}

void write_row(const RowState& row, int64_t head_dim, float* to) {
    const float scale = 1.0f / row.total;
    for (int64_t d = 0; d < head_dim; d += 8) store(to + d, load(row.result + d) * scale);
}

// Leave a split's result to the merge: [rows][head_dim + 2].
void keep_partial(const Attention& a, const AttentionTask& task, int64_t rows,
                  const AttentionScratch& s) {
    const int64_t head_dim = a.shape.head_dim;
    for (int64_t row = 0; row < rows; ++row) {
        float* to = a.partials + task.partial + row * (head_dim + 2);
        std::memcpy(to, s.result.data() + row * head_dim, head_dim * sizeof(float));
        to[head_dim] = s.peak[row];
        to[head_dim + 1] = s.total[row];
    }
}

void attend(const Attention& a, const AttentionTask& task, AttentionScratch& s) {
    const int64_t rows = task.num_queries * a.heads_per_kv_head, head_dim = a.shape.head_dim;
    s.reserve(rows, head_dim);
    std::vector<RowState>& sums = s.sums;
    for (int64_t row = 0; row < rows; ++row) {
        const float* query =
            a.query + row_offset(a, task.token, task.kv_head, row, a.query_stride);
        float* scaled = s.query.data() + row * head_dim;
        for (int64_t d = 0; d < head_dim; d += 8)
            store(scaled + d, load(query + d) * a.shape.scale);
        sums[row] = {kNothingSeen, 0.0f, s.sum_results.data() + row * head_dim};
    }
    if (task.partial >= 0) {
        attend_split(a, task, task.key_begin, task.key_end, rows, s);
        return keep_partial(a, task, rows, s);
    }
    std::fill_n(s.sum_results.begin(), rows * head_dim, 0.0f);
    for (int64_t begin = 0; begin < task.key_end; begin += kKeysPerSplit) {
        attend_split(a, task, begin, std::min(begin + kKeysPerSplit, task.key_end), rows, s);
        for (int64_t row = 0; row < rows; ++row)
            fold(sums[row], {s.peak[row], s.total[row], s.result.data() + row * head_dim}, head_dim);
    }
    for (int64_t row = 0; row < rows; ++row)
        write_row(sums[row], head_dim,
                  a.out + row_offset(a, task.token, task.kv_head, row, a.out_stride));
}

void merge(const Attention& a, const AttentionMerge& m) {
    const int64_t rows = m.num_queries * a.heads_per_kv_head, head_dim = a.shape.head_dim;
    for (int64_t row = 0; row < rows; ++row) {
        float* first = a.partials + m.partial + row * (head_dim + 2);
        float* to = a.out + row_offset(a, m.token, m.kv_head, row, a.out_stride);
        std::fill(to, to + head_dim, 0.0f);
        RowState sum{kNothingSeen, 0.0f, to};
        for (int64_t i = 0; i < m.splits; ++i) {
            float* part = first + i * a.partial_size(rows);
            fold(sum, {part[head_dim], part[head_dim + 1], part}, head_dim);
        }
        write_row(sum, head_dim, to);
    }
}

}  // namespace

void attend_all(Worker& worker, const Attention& a, const std::vector<AttentionTask>& tasks,
                const std::vector<AttentionMerge>& merges, AttentionScratch& scratch) {
    worker.each_range(static_cast<int64_t>(tasks.size()), 1,
                      [&](int64_t i) { attend(a, tasks[i], scratch); });
    if (merges.empty()) return;
    worker.each_range(static_cast<int64_t>(merges.size()), 1,
                      [&](int64_t i) { merge(a, merges[i]); });
}

}  // namespace quire
