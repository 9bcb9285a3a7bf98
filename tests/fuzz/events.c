/* events.c -- fuzz target: reads any bytes as an event file.
 *
 * First the bytes are the whole file, where checksums fail soon. Then they are the payload of one
 * record with right checksums, so that they reach the parser of messages. */
#include "../../runner/io/events_impl.h"
#include "rd/file.h"
#include "fuzz_files.h"
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void on_value(void *ctx, int64_t step, double wall, const char *tag, const char *kind,
                     double value)
{
    size_t *n = ctx;
    (void)step;
    (void)wall;
    (void)value;
    *n += strlen(tag) + strlen(kind);
}

/* What a scan hands out lies within the record. */
static void on_blob(void *ctx, const rd_event_blob *b)
{
    size_t *n = ctx;
    const unsigned char *p = b->bytes;
    must(p != NULL && strlen(b->tag) > 0);
    for (size_t i = 0; i < b->n; i++) *n += p[i];
}

static void scan(const void *p, size_t size)
{
    static const char *const tags[] = {"a", "sample", "mistakes", "config", NULL};
    char path[FUZZ_PATH];
    size_t n = 0;
    fuzz_memory_file(p, size, path);
    must(rd_events_scan(path, tags, INT64_MAX, on_blob, &n) >= 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    rd_status st = {0};
    size_t n = 0;
    if (rd_events_read_mem(data, size, on_value, &n, &st) != RD_OK && !st.msg[0]) abort();

    unsigned char *record = malloc(size + 16);
    if (!record) return 0;
    const uint64_t len = size;
    memcpy(record, &len, 8);
    uint32_t crc = rd_event_mask(rd_crc32c(0, record, 8));
    memcpy(record + 8, &crc, 4);
    if (size) memcpy(record + 12, data, size);
    crc = rd_event_mask(rd_crc32c(0, data, size));
    memcpy(record + 12 + size, &crc, 4);
    st = (rd_status){0};
    if (rd_events_read_mem(record, size + 16, on_value, &n, &st) != RD_OK &&
        !strstr(st.msg, "not an event"))
        abort();
    scan(data, size);
    scan(record, size + 16);
    free(record);
    return 0;
}
