#include "frontend/config/quantisation.h"
#include "support/packed.h"
#include "tests/fuzz/fuzz.h"

enum { MOST_ELEMENTS = 1 << 16 }; /* of a tensor that are read */

/* Two shards for indexes to name. */
static void write_shards(void) {
    static bool done;
    static const char shard[] =
        "\x39\0\0\0\0\0\0\0{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}  "
        "\0\0\x80\x3f\0\0\0\x40";
    if (done) return;
    fuzz_write("1.safetensors", shard, sizeof shard - 1);
    fuzz_write("2.safetensors", shard, sizeof shard - 1);
    done = true;
}

/* Every byte that the header promises is there, and every element of packed ones decodes. */
static bool open_tensors(hd_arena *a, hd_diags *d, const char *data, size_t n) {
    hd_tensors stored, all;
    const hd_quantisation how = {0};
    const bool index = n > 0 && data[0] == '{';
    if (index) write_shards();
    const char *path =
        fuzz_write(index ? "model.safetensors.index.json" : "fuzz.safetensors", data, n);
    if (!hd_safetensors_open(a, d, path, &stored)) return false;
    for (size_t i = 0; i < stored.list.n; i++)
        fuzz_touch(stored.list.at[i].data, stored.list.at[i].bytes);
    if (!hd_unpack(a, d, &stored, &how, &all)) return false;
    volatile double sum = 0;
    for (size_t i = 0; i < all.list.n; i++)
        for (uint64_t j = 0; j < all.list.at[i].elements && j < MOST_ELEMENTS; j++)
            if (hd_tensor_is_number(&all.list.at[i])) sum = sum + hd_tensor_get(&all.list.at[i], j);
    return true;
}

int fuzz_safetensors(const uint8_t *data, size_t n) {
    fuzz_in_arena(open_tensors, data, n);
    return 0;
}
