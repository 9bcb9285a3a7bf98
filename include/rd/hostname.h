/* hostname.h -- the one check of host names that come from outside.
 *
 * A host's name becomes a word of an ssh or mpirun line. It must never be an option or contain a
 * blank or a character of a shell. docker/cluster has the same rule. */
#ifndef RD_HOSTNAME_H
#define RD_HOSTNAME_H

#include "rd/status.h"
#include <stdint.h>

RD_C_BEGIN

enum {
    RD_HOST_BYTES = 254,    /* of a name, with its '\0' (RFC 1035: 253 characters) */
    RD_USER_BYTES = 64,     /* of a user's name, with its '\0' */
    RD_MOST_RANKS = 1000000 /* largest count of ranks or slots that a line may name */
};

/* Returns whether s[0..n) may be a host: a name of ASCII letters, digits, '.', '_' and '-' that
 * does not begin with '-' or '.', or an IPv6 address without brackets and zone. */
bool rd_host_name(const char *s, size_t n);
/* Returns whether s[0..n) may be a user's name. The same characters as above. */
bool rd_host_user(const char *s, size_t n);
/* Returns the number that s[0..n) writes in decimal digits, 1 .. most. 0: it is anything else. */
int64_t rd_host_count(const char *s, size_t n, int64_t most);

/* One entry of a list of hosts, in parts. Borrowed from the entry. */
typedef struct rd_host_entry {
    const char *user, *name, *slots; /* user, slots NULL: not given */
    size_t n_user, n_name, n_slots;
} rd_host_entry;

/* Takes "[user@]name[:slots]" apart and checks user and name. An IPv6 address is in brackets where
 * slots follow. The slots are not checked. RD_EUSAGE: the message begins with `where` and shows the
 * entry. */
rd_code rd_host_entry_read(const char *s, size_t n, const char *where, rd_host_entry *out,
                           rd_status *st);

RD_C_END
#endif
