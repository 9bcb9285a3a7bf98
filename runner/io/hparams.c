/* hparams.c -- contents of TensorBoard's hparams plugin (plugin_data.proto, api.proto).
 *
 * They hold the values that a run was started with, how it ended, and which tags are its results.
 * Values are numbers, texts or bools. Any other JSON value is written as its text. */
#include "events_impl.h"
#include <stdlib.h>

enum { TYPE_STRING = 1, TYPE_BOOL = 2, TYPE_FLOAT64 = 3 };

static int hparams_type_of(const json_t *v)
{
    return json_is_number(v) ? TYPE_FLOAT64 : json_is_boolean(v) ? TYPE_BOOL : TYPE_STRING;
}

/* Writes a google.protobuf.Value. */
static void hparams_value(rd_strbuf *b, const json_t *v)
{
    if (json_is_number(v)) {
        rd_pb_double(b, 2, json_number_value(v));
    } else if (json_is_string(v)) {
        rd_pb_bytes(b, 3, json_string_value(v), json_string_length(v));
    } else if (json_is_boolean(v)) {
        rd_pb_uint(b, 4, json_is_true(v));
    } else {
        char *text = json_dumps(v, JSON_COMPACT | JSON_ENCODE_ANY);
        rd_pb_string(b, 3, text ? text : "");
        free(text);
    }
}

void rd_hparams_start(rd_strbuf *content, const json_t *flat, double wall)
{
    rd_strbuf info = {0}, entry = {0}, value = {0};
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)(uintptr_t)flat, key, v)
    {
        rd_strbuf_reset(&entry);
        rd_strbuf_reset(&value);
        hparams_value(&value, v);
        rd_pb_string(&entry, 1, key);
        rd_pb_message(&entry, 2, &value);
        rd_pb_message(&info, 1, &entry);
    }
    rd_pb_double(&info, 5, wall);
    rd_pb_message(content, 3, &info);
    rd_strbuf_release(&info);
    rd_strbuf_release(&entry);
    rd_strbuf_release(&value);
}

/* Writes HParamInfo {1 name, 4 type, 7 differs}. The viewer shows five columns at first: those that
 * differ, by name. */
static void hparams_column(rd_strbuf *experiment, const char *key, const json_t *v, bool first)
{
    rd_strbuf info = {0};
    if (!v) return;
    rd_pb_string(&info, 1, key);
    rd_pb_uint(&info, 4, (uint64_t)hparams_type_of(v));
    if (first) rd_pb_uint(&info, 7, 1);
    rd_pb_message(experiment, 4, &info);
    rd_strbuf_release(&info);
}

void rd_hparams_experiment(rd_strbuf *content, const json_t *flat, const char *const *columns,
                           int n_first, const rd_event_metric *metrics, double wall)
{
    rd_strbuf experiment = {0}, info = {0}, name = {0};
    const char *key;
    json_t *v;
    rd_pb_double(&experiment, 3, wall);
    for (int i = 0; columns && columns[i]; i++)
        hparams_column(&experiment, columns[i], json_object_get(flat, columns[i]), i < n_first);
    json_object_foreach((json_t *)(uintptr_t)flat, key, v)
    {
        if (!columns) hparams_column(&experiment, key, v, false);
    }
    for (int i = 0; metrics && metrics[i].tag; i++) {
        rd_strbuf_reset(&info);
        rd_strbuf_reset(&name);
        if (metrics[i].group[0]) rd_pb_string(&name, 1, metrics[i].group);
        rd_pb_string(&name, 2, metrics[i].tag);
        rd_pb_message(&info, 1, &name);
        rd_pb_message(&experiment, 5, &info);
    }
    rd_pb_message(content, 2, &experiment);
    rd_strbuf_release(&experiment);
    rd_strbuf_release(&info);
    rd_strbuf_release(&name);
}

void rd_hparams_end(rd_strbuf *content, int status, double wall)
{
    rd_strbuf info = {0};
    rd_pb_uint(&info, 1, (uint64_t)status);
    rd_pb_double(&info, 2, wall);
    rd_pb_message(content, 4, &info);
    rd_strbuf_release(&info);
}
