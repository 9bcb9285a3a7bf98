/* make_jpegs.c -- writes class folders of JPEGs to measure decoding with.
 *
 *     build/release/tests/bench/make_jpegs DIR [count]
 *
 * Writes count files (64) to DIR/train/0 .. DIR/train/3: 500 x 375 pixels, quality 90, 4:2:0, 60 to
 * 120 KB, as a typical image of ImageNet. The contents are waves of many lengths with some
 * noise. */
#include "rd/file.h"
#include "rd/philox.h"
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <turbojpeg.h>

enum { W = 500, H = 375, WAVES = 24, CLASSES = 4 };

static void draw(uint64_t k, uint8_t *rgb)
{
    static float line[W], noise[W * 3];
    const rd_key key = rd_key_make(1, RD_RNG_TEST, 100, 0);
    float u[WAVES][8];
    rd_philox_uniform(key, k << 20, WAVES * 8, &u[0][0]);
    for (int y = 0; y < H; y++) {
        float sum[3][W] = {{0.0f}};
        for (int j = 0; j < WAVES; j++) {
            const float f = 0.01f * powf(80.0f, u[j][0]), a = 6.28f * u[j][1],
                        strength = 0.28f / sqrtf(f);
            for (int x = 0; x < W; x++)
                line[x] = strength *
                          sinf(f * (cosf(a) * (float)x + sinf(a) * (float)y) + 6.28f * u[j][2]);
            for (int c = 0; c < 3; c++)
                for (int x = 0; x < W; x++) sum[c][x] += (0.4f + 0.6f * u[j][3 + c]) * line[x];
        }
        rd_philox_uniform(key, (k << 20) + 1 + (uint64_t)y, (int64_t)W * 3, noise);
        for (int x = 0; x < W; x++)
            for (int c = 0; c < 3; c++) {
                const float v = 127.0f + 22.0f * sum[c][x] + 45.0f * (noise[3 * x + c] - 0.5f);
                rgb[((size_t)y * W + (size_t)x) * 3 + (size_t)c] = (uint8_t)fminf(255.0f,
                                                                                  fmaxf(0.0f, v));
            }
    }
}

static rd_code make(const char *dir, int count, rd_status *st)
{
    uint8_t *rgb = malloc((size_t)W * H * 3);
    tjhandle tj = tjInitCompress();
    unsigned char *jpeg = NULL;
    if (!rgb || !tj) rd_fail(st, RD_EENV, "out of memory");
    for (int k = 0; k < count && st->code == RD_OK; k++) {
        char path[4096];
        unsigned long n = 0;
        draw((uint64_t)k, rgb);
        if (tjCompress2(tj, rgb, W, 0, H, TJPF_RGB, &jpeg, &n, TJSAMP_420, 90, 0) != 0) {
            rd_fail(st, RD_EENV, "TurboJPEG: %s", tjGetErrorStr2(tj));
            break;
        }
        (void)snprintf(path, sizeof path, "%.4000s/train/%d", dir, k % CLASSES);
        RD_TRY(rd_mkdirs(path, st));
        (void)snprintf(path, sizeof path, "%.4000s/train/%d/%03d.jpg", dir, k % CLASSES, k);
        RD_TRY(rd_file_write_atomic(path, jpeg, n, st));
        tjFree(jpeg);
        jpeg = NULL;
    }
done:
    tjFree(jpeg);
    if (tj) (void)tjDestroy(tj);
    free(rgb);
    return st->code;
}

int main(int argc, char **argv)
{
    rd_status st = {0};
    const int count = argc > 2 ? atoi(argv[2]) : 64;
    if (argc < 2 || count < 1) {
        (void)fputs("usage: make_jpegs DIR [count]\n", stderr);
        return 2;
    }
    if (make(argv[1], count, &st) != RD_OK) (void)fprintf(stderr, "make_jpegs: %s\n", st.msg);
    return (int)st.code;
}
