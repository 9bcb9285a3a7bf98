/* nearest.c -- finds the known word nearest to a mistyped one.
 *
 * The Damerau-Levenshtein distance with free editing of swapped characters (Lowrance and Wagner
 * 1975). a and b are words. d(i, j) is the distance of their first i and j characters. i' and j'
 * are where the pair a_i, b_j last occurred the other way round:
 *
 *   d(i, j) = min( d(i-1, j) + 1,  d(i, j-1) + 1,  d(i-1, j-1) + [a_i != b_j],
 *                  d(i'-1, j'-1) + (i-i'-1) + 1 + (j-j'-1) )
 *
 * Characters are bytes; their case does not matter. */
#include "rd/options.h"
#include <ctype.h>
#include <string.h>

enum { LONGEST = 80 }; /* no key is longer, so nothing is near a longer word */

static int nearest_distance(const unsigned char *a, int n, const unsigned char *b, int m)
{
    int d[LONGEST + 2][LONGEST + 2], last_row[256] = {0};
    const int far = n + m;
    d[0][0] = far;
    for (int i = 0; i <= n; i++) d[i + 1][0] = far, d[i + 1][1] = i;
    for (int j = 0; j <= m; j++) d[0][j + 1] = far, d[1][j + 1] = j;
    for (int i = 1; i <= n; i++) {
        int last_col = 0;
        for (int j = 1; j <= m; j++) {
            const int k = last_row[b[j - 1]], l = last_col;
            const bool same = a[i - 1] == b[j - 1];
            if (same) last_col = j;
            int best = d[i][j] + !same;
            if (d[i + 1][j] + 1 < best) best = d[i + 1][j] + 1;
            if (d[i][j + 1] + 1 < best) best = d[i][j + 1] + 1;
            const int swapped = d[k][l] + (i - k - 1) + 1 + (j - l - 1);
            if (swapped < best) best = swapped;
            d[i + 1][j + 1] = best;
        }
        last_row[a[i - 1]] = i;
    }
    return d[n + 1][m + 1];
}

/* Returns the length, or -1: too long. */
static int lower(const char *s, unsigned char *out)
{
    int n = 0;
    for (; s[n]; n++) {
        if (n == LONGEST) return -1;
        out[n] = (unsigned char)tolower((unsigned char)s[n]);
    }
    return n;
}

const char *rd_nearest(const char *word, const char *const *known, int n)
{
    unsigned char a[LONGEST], b[LONGEST];
    const int len = lower(word, a);
    if (len < 0) return NULL;
    const char *best = NULL;
    int least = 1 + len / 4 + 1;
    for (int i = 0; i < n; i++) {
        const int m = lower(known[i], b);
        if (m < 0) continue;
        const int d = nearest_distance(a, len, b, m);
        if (d < least) least = d, best = known[i];
    }
    return best;
}
