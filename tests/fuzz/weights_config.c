/* weights_config.c -- fuzz target: reads any bytes as the config.json of weights of transformers,
 * or as the adapter_config.json of PEFT if there is a key peft_type.
 *
 * The keys of an accepted file have the types and sizes that the model's options allow. */
#include "rd/model.h"
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void whole_number(const json_t *keys, const char *key, json_int_t most)
{
    const json_t *v = json_object_get(keys, key);
    if (!json_is_integer(v) || json_integer_value(v) < 1 || json_integer_value(v) > most) abort();
}

static void adapter(const rd_model_def *m, const json_t *o)
{
    json_t *keys = json_object();
    rd_status st = {0};
    if (m->folder->adapter_keys(o, "adapter_config.json", keys, &st) == RD_OK) {
        const json_t *names = json_object_get(keys, "lora_targets"),
                     *bias = json_object_get(o, "bias");
        const double alpha = json_number_value(json_object_get(keys, "lora_alpha"));
        whole_number(keys, "lora_rank", 4096);
        if (!(alpha > 0.0) || alpha > 1e6) abort();
        if (json_array_size(names) == 0) abort();
        for (size_t i = 0; i < json_array_size(names); i++)
            if (json_string_length(json_array_get(names, i)) == 0) abort();
        if (!json_is_boolean(json_object_get(keys, "lora_rslora"))) abort();
        if (bias && !json_is_null(bias) && strcmp(json_string_value(bias), "none") != 0) abort();
    } else if (st.code != RD_ECKPT || !strstr(st.msg, "adapter_config.json")) {
        abort();
    }
    json_decref(keys);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const rd_model_def *m = rd_model_find("gpt");
    json_t *o = json_loadb((const char *)data, size, JSON_REJECT_DUPLICATES, NULL),
           *keys = json_object();
    rd_status st = {0};
    if (json_is_object(o) && json_object_get(o, "peft_type")) {
        adapter(m, o);
    } else if (json_is_object(o)) {
        if (m->folder->keys(o, "config.json", keys, &st) == RD_OK) {
            static const char *const words[] = {"norm_type", "pos", "bias", "activation",
                                                "tie_embeddings"};
            whole_number(keys, "n_layers", 128);
            whole_number(keys, "n_embd", 65536);
            whole_number(keys, "n_heads", 1024);
            whole_number(keys, "n_kv_heads", 1024);
            whole_number(keys, "ff_dim", 1 << 20);
            whole_number(keys, "max_len", 1 << 20);
            whole_number(keys, "vocab_rows", 1 << 24);
            if (!(json_number_value(json_object_get(keys, "norm_eps")) > 0.0)) abort();
            for (size_t i = 0; i < sizeof words / sizeof *words; i++)
                if (!json_is_string(json_object_get(keys, words[i]))) abort();
        } else if (st.code != RD_ECKPT || !strstr(st.msg, "config.json")) {
            abort();
        }
    }
    json_decref(keys);
    json_decref(o);
    return 0;
}
