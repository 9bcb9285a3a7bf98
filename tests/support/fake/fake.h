/* fake.h -- what tests ask of the fake runtime (CUDA=fake; see fake_runtime.h). */
#ifndef RD_FAKE_H
#define RD_FAKE_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Returns the number of calls of CUDA's libraries so far. Calls that only ask for a text or a
 * version do not count. */
int64_t rd_fake_calls(void);
/* Makes call k from now on fail; 1 is the next call. lasting: all later calls fail, too, as if the
 * device were gone. k = 0: no call fails. */
void rd_fake_fail(int64_t k, bool lasting);
/* Returns the name of the call that failed first since the last rd_fake_fail; NULL: none. */
const char *rd_fake_failed(void);
/* Returns the number of objects that nobody has freed: memory, streams, events, graphs,
 * descriptors. A failed call that would have freed an object has freed it. */
int64_t rd_fake_left(void);

typedef struct rd_fake_work {
    int64_t kernels, products, convolutions, copies, recurrent;
    /* starts of graphs, and the work above that ran in them */
    int64_t graphs, in_graphs;
    /* times that the host waited for a stream, an event or the whole device */
    int64_t waits;
    /* bytes that were copied to the device, from it, and on it */
    int64_t up_bytes, down_bytes, device_bytes;
    /* sums over ranks; plans of convolutions that were made while a sum was queued */
    int64_t sums, plans_beside_sums;
} rd_fake_work;
/* Writes the counts so far to *out. */
void rd_fake_count(rd_fake_work *out);

#ifdef __cplusplus
}
#endif
#endif
