// The C interface of quire's CPU kernels, called through ctypes; `layout.py` mirrors the structs.
//
// A weight matrix lies in tiles of 8 rows, so that one register holds 8 rows and a dot product
// needs no sum across lanes. A decoder step is one call, whose hidden
// states return to Python only if they are asked for.
#pragma once

#include <cstdint>

#pragma GCC visibility push(default)
extern "C" {

// How a packed matrix is stored; see tiles.h.
enum QuireFormat : int32_t {
    QUIRE_F32 = 0,
    QUIRE_F16 = 1,
    QUIRE_BF16 = 2,
    QUIRE_Q4 = 3,   // 4 bits, fp16 scale and minimum for 32 weights
    QUIRE_Q8 = 4,   // 8 bits, fp16 scale for 32 weights
    QUIRE_Q8M = 5,  // 8 bits, fp16 scale and minimum for 32 weights
    QUIRE_Q8H = 6,  // 8 bits, fp16 scale for 16 weights
};

enum QuireActivation : int32_t { QUIRE_SILU = 0, QUIRE_GELU_TANH = 1 };

struct QuireMatrix {
    const uint8_t* tiles;  // null where a model has no such matrix
    int64_t rows;          // outputs
    int64_t cols;          // inputs
    int32_t format;
};

// One layer. Norms and biases are fp32; a null pointer means that the model has none.
struct QuireLayer {
    const float* attention_norm;       // [hidden]
    QuireMatrix query, key, value;     // [heads * head_dim, hidden], of kv_heads for key and value
    const float* query_bias;           // [heads * head_dim]
    const float* key_bias;             // [kv_heads * head_dim]
    const float* value_bias;           // [kv_heads * head_dim]
    const float* query_norm;           // [head_dim], over each head before the rotation
    const float* key_norm;             // [head_dim]
    QuireMatrix output;                // [hidden, heads * head_dim]
    const float* post_attention_norm;  // [hidden], over the output before it is added
    const float* mlp_norm;             // [hidden]
    QuireMatrix gate, up;              // [intermediate, hidden]
    QuireMatrix down;                  // [hidden, intermediate]
    const float* post_mlp_norm;        // [hidden], over the output before it is added
    int32_t window;                    // newest keys that a query sees; 0: all
    int32_t rope;                      // which of the model's two frequency tables
};

struct QuireModel {
    int32_t num_layers, hidden, num_heads, num_kv_heads, head_dim, intermediate, vocab;
    int32_t activation;
    float epsilon;
    float attention_scale;    // of query times key
    float attention_softcap;  // 0: none
    float logit_softcap;      // 0: none
    float embedding_scale;
    float rope_scale[2];                 // of cosines and sines, by frequency table
    const float* inverse_frequencies[2];  // [head_dim / 2]; the second may be null
    QuireMatrix embedding, head;         // [vocab, hidden]
    const float* final_norm;             // [hidden]
    const QuireLayer* layers;            // [num_layers]
};

// KV memory [num_blocks, num_layers, 2, num_kv_heads, block_size, head_dim], contiguous.
struct QuireCache {
    void* data;
    int64_t num_blocks;
    int32_t num_layers, num_kv_heads, head_dim, block_size;
    int32_t dtype;  // QUIRE_F32, QUIRE_F16 or QUIRE_BF16
};

// What one step computes: chunks of consecutive tokens, each of one row of the block tables.
struct QuireBatch {
    int32_t num_chunks;
    const int32_t* rows;          // [num_chunks]
    const int32_t* starts;        // [num_chunks] position of the first token
    const int32_t* num_tokens;    // [num_chunks]
    const uint8_t* samples;       // [num_chunks] 1: logits of the last token are wanted
    const int32_t* token_ids;     // [sum of num_tokens]
    const int32_t* block_tables;  // [rows, block_table_stride]
    int64_t block_table_stride;
    float* logits;     // [sum of samples, vocab], or null
    int32_t* argmax;   // [sum of samples], or null
    float* states;     // [sum of num_tokens, hidden], or null: every token's, after the final norm
};

struct QuireTeam;  // worker threads, asleep between calls
struct QuireWorkspace;

QuireTeam* quire_team_create(int32_t num_threads);
void quire_team_destroy(QuireTeam* team);
QuireWorkspace* quire_workspace_create();
void quire_workspace_destroy(QuireWorkspace* workspace);
const char* quire_instructions();  // "avx2", "vnni" or "portable"

int64_t quire_packed_bytes(int32_t format, int64_t rows, int64_t cols);
// `source` holds GGUF blocks of `ggml_type`, row by row; returns 0, or 1 where there is no way.
int32_t quire_pack(QuireTeam* team, int32_t ggml_type, const uint8_t* source, int32_t format,
                   int64_t rows, int64_t cols, uint8_t* tiles);

void quire_decode_step(QuireTeam* team, QuireWorkspace* workspace, const QuireModel* model,
                       const QuireCache* cache, const QuireBatch* batch);

// Single operations, on fp32 rows.
void quire_embed(const QuireMatrix* matrix, const int32_t* ids, int64_t count, float* out);
void quire_rms_norm(const float* x, const float* weight, float epsilon, int64_t rows, int64_t cols,
                    float* out);
void quire_matmul(QuireTeam* team, const QuireMatrix* matrix, const float* x, int64_t tokens,
                  float* out);
void quire_attention(QuireTeam* team, const QuireCache* cache, int32_t layer, int32_t num_heads,
                     float scale, float softcap, int32_t window, const QuireBatch* batch,
                     const float* query, float* out);
}
#pragma GCC visibility pop
