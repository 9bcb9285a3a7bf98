/* weights_folder.c -- fuzz target: reads any bytes as the index of a folder of weights,
 * model.safetensors.index.json. The folder has two files with two arrays and one.
 *
 * Each array of an accepted index is in the file that the index names, and can be read. */
#include "fuzz_files.h"
#include "rd/weights_folder.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void put_file(const char *folder, const char *name, const void *p, size_t n)
{
    char path[2 * FUZZ_PATH];
    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "wb");
    must(f && fwrite(p, 1, n, f) == n && fclose(f) == 0);
}

/* Writes a safetensors file of n floats, which the header names. */
static void put_weights(const char *folder, const char *name, const char *header, size_t n)
{
    uint8_t bytes[512] = {0};
    const size_t head = strlen(header);
    must(8 + head + 4 * n <= sizeof bytes);
    bytes[0] = (uint8_t)head; /* little-endian, in 8 bytes */
    memcpy(bytes + 8, header, head);
    for (size_t i = 0; i < 4 * n; i++) bytes[8 + head + i] = (uint8_t)i;
    put_file(folder, name, bytes, 8 + head + 4 * n);
}

static void check_accepted(const rd_weights *w, const uint8_t *data, size_t size)
{
    json_t *root = json_loadb((const char *)data, size, 0, NULL), *v;
    json_t *map = json_object_get(root, "weight_map");
    const char *key;
    must(json_is_object(map) && (size_t)rd_weights_n(w) == json_object_size(map));
    json_object_foreach(map, key, v)
    {
        rd_status st = {0};
        float out[8];
        const rd_array *a = rd_weights_find(w, key);
        must(a && strcmp(a->name, key) == 0 && a->bytes <= sizeof out);
        must(strcmp(json_string_value(v), key[0] == 'z' ? "b.safetensors" : "a.safetensors") == 0);
        must(rd_weights_read(w, key, out, (int64_t)(a->bytes / 4), &st) == RD_OK);
    }
    json_decref(root);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *folder = fuzz_folder();
    rd_weights *w;
    rd_status st = {0};
    put_weights(folder, "a.safetensors",
                "{\"x\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},"
                "\"y\":{\"dtype\":\"F32\",\"shape\":[1,1],\"data_offsets\":[8,12]}}",
                3);
    put_weights(folder, "b.safetensors",
                "{\"z\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]}}", 1);
    put_file(folder, "model.safetensors.index.json", data, size);
    if (rd_weights_new(folder, &w, &st) == RD_OK) {
        check_accepted(w, data, size);
        rd_weights_free(w);
    } else {
        must(w == NULL && st.code == RD_ECKPT && st.msg[0]);
    }
    return 0;
}
