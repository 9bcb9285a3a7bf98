#!/usr/bin/env python3
"""Writes tests/golden/pixel_values.h: warps, resampled boxes, a CMYK file and PNGs, computed without run_dist.

  warps   the matrix as in Keras' ImageDataGenerator of 2018 (keras_preprocessing 1.0), in NumPy float64; the pixels by
          scipy.ndimage.affine_transform, order 1, mode "nearest", channel by channel, as in apply_transform
  boxes   Pillow's Image.resize(box=..., BILINEAR) of float images (mode "F"), without rounding; smaller and larger
  views   what an evaluation sees: torchvision's Resize(short side) and CenterCrop, by Pillow in mode "F". The sizes
          are such that torchvision rounds neither the long side nor the place of the crop. Without a short side: the
          largest part in the middle with the shape of the result
  JPEG    CMYK as Pillow writes it (Adobe marker, inverted), with the RGB that Pillow makes when it reads the file
  PNGs    likewise, without their transparency, 16 bits cut to 8

    python3 tests/golden/make_pixels.py > tests/golden/pixel_values.h
"""
import io

import numpy as np
import PIL
import scipy
from PIL import Image
from scipy.ndimage import affine_transform

rng = np.random.default_rng(11)


def picture(h, w, c, seed):
    """Bytes of a linear congruential generator, which the C side has, too."""
    x = np.uint64(seed)
    out = np.empty(h * w * c, np.uint8)
    for i in range(out.size):
        x = (x * np.uint64(1103515245) + np.uint64(12345)) & np.uint64(0x7FFFFFFF)
        out[i] = int(x) >> 16 & 255
    return out.reshape(h, w, c)


def keras_matrix(h, w, theta, tx, ty, shear, zx, zy, center):
    """transform_matrix_offset_center of the product rotation, shift, shear, zoom."""
    rotation = np.array([[np.cos(theta), -np.sin(theta), 0], [np.sin(theta), np.cos(theta), 0], [0, 0, 1]])
    shift = np.array([[1, 0, tx], [0, 1, ty], [0, 0, 1]])
    shear_matrix = np.array([[1, -np.sin(shear), 0], [0, np.cos(shear), 0], [0, 0, 1]])
    zoom = np.array([[zx, 0, 0], [0, zy, 0], [0, 0, 1]])
    m = np.dot(np.dot(np.dot(rotation, shift), shear_matrix), zoom)
    o_x, o_y = float(h) / 2 + center, float(w) / 2 + center
    offset, reset = (np.array([[1, 0, k * o_x], [0, 1, k * o_y], [0, 0, 1]]) for k in (1, -1))
    return np.dot(np.dot(offset, m), reset)


def numbers(a, form="%.7g"):
    return ", ".join(form % v for v in np.asarray(a).ravel())


print("/* Written by tests/golden/make_pixels.py with numpy %s, scipy %s and pillow %s.\n * Do not edit. */" %
      (np.__version__, scipy.__version__, PIL.__version__))
print("#ifndef PIXEL_VALUES_H\n#define PIXEL_VALUES_H\n\n#include <stddef.h>\n#include <stdint.h>\n")

# ---- warps: (h, w, c, rotation, shift, shear, zoom, centre, degrees)
warps = [
    ("as the MNIST example", 28, 28, 1, 8, 0.08, 0.3, 0.08, 0.5, True),
    ("shear in radians", 28, 28, 1, 8, 0.08, 0.3, 0.08, 0.5, False),
    ("later centre", 9, 13, 1, 30, 0.2, 10, 0.3, -0.5, True),
    ("three channels", 7, 5, 3, 45, 0.1, 20, 0.2, 0.5, True),
    ("far outside", 6, 8, 1, 180, 1.0, 40, 0.9, 0.5, True),
    ("one row", 1, 9, 1, 10, 0.5, 1, 0.1, 0.5, True),
    ("one column", 8, 1, 1, 10, 0.5, 1, 0.1, 0.5, True),
    ("wider than a run of columns", 3, 150, 1, 5, 0.05, 2, 0.05, 0.5, True),
    ("nothing", 5, 6, 1, 0, 0, 0, 0, 0.5, True),
]
body = ""
for k, (name, h, w, c, rot, sh, shear, zoom, center, degrees) in enumerate(warps):
    u = rng.integers(0, 1 << 24, 6) / float(1 << 24)
    d = 2 * u - 1
    angle = np.deg2rad(shear) if degrees else shear
    m = keras_matrix(h, w, np.deg2rad(rot) * d[0], d[1] * sh * h, d[2] * sh * w, angle * d[3], 1 + zoom * d[4],
                     1 + zoom * d[5], center)
    x = picture(h, w, c, k + 1).astype(np.float64)
    y = np.stack([affine_transform(x[:, :, i], m[:2, :2], m[:2, 2], order=1, mode="nearest") for i in range(c)], 2)
    print("static const float warp_%d[] = {%s};" % (k, numbers(y)))
    body += "    {\"%s\", %d, %d, %d, {%s}, {%s}, {%s}, warp_%d, %d},\n" % (
        name, h, w, c, numbers([np.deg2rad(rot), sh, angle, zoom, center], "%.17g"), numbers(u, "%.9gf"),
        numbers(m[:2], "%.17g"), k, k + 1)
print("\nstatic struct warp_row {\n    const char *name;\n    int h, w, c;\n"
      "    double range[5]; /* rotation, shift, shear, zoom, centre */\n"
      "    float u[6];\n    double m[6];\n    const float *want;\n    unsigned seed;\n} warp_rows[] = {\n%s};\n" % body)

# ---- boxes: (h, w, c, y, x, bh, bw, out_h, out_w)
boxes = [
    ("smaller, whole", 40, 60, 1, 0, 0, 40, 60, 7, 9),
    ("smaller, a part", 40, 60, 3, 3.25, 10.5, 30.5, 40.25, 11, 8),
    ("larger", 9, 7, 3, 0, 0, 9, 7, 20, 16),
    ("larger, a part", 30, 30, 1, 12.3, 4.7, 5.1, 3.9, 9, 13),
    ("the same", 8, 10, 3, 0, 0, 8, 10, 8, 10),
    ("one up, one down", 50, 6, 1, 0, 0, 50, 6, 5, 18),
    ("at the corner", 33, 21, 3, 20, 11, 13, 10, 6, 6),
    ("one pixel", 1, 1, 3, 0, 0, 1, 1, 4, 3),
    ("to one pixel", 17, 23, 1, 0, 0, 17, 23, 1, 1),
    ("a strip", 64, 3, 3, 0, 0, 64, 3, 4, 3),
]
body = ""
for k, (name, h, w, c, y0, x0, bh, bw, oh, ow) in enumerate(boxes):
    x = picture(h, w, c, 100 + k)
    y = np.stack([np.asarray(Image.fromarray(x[:, :, i].astype(np.float32), "F").resize(
        (ow, oh), Image.BILINEAR, box=(x0, y0, x0 + bw, y0 + bh))) for i in range(c)], 2)
    print("static const float box_%d[] = {%s};" % (k, numbers(y)))
    body += "    {\"%s\", %d, %d, %d, {%s}, %d, %d, box_%d, %d},\n" % (name, h, w, c,
                                                                      numbers([y0, x0, bh, bw], "%.17g"), oh, ow, k,
                                                                      100 + k)
print("\nstatic struct box_row {\n    const char *name;\n    int h, w, c;\n    double box[4]; /* y, x, h, w */\n"
      "    int out_h, out_w;\n"
      "    const float *want;\n    unsigned seed;\n} box_rows[] = {\n%s};\n" % body)

# ---- views: (h, w, c, eval_resize, out_h, out_w). Resize makes the short side eval_resize and keeps the shape.
views = [
    ("landscape", 40, 60, 3, 20, 14, 14),
    ("portrait", 60, 40, 1, 20, 14, 14),
    ("low and wide result", 40, 60, 1, 20, 10, 16),
    ("high and narrow result", 40, 60, 1, 20, 16, 10),
    ("a smaller image", 10, 15, 1, 20, 14, 14),
    ("an image of that size", 12, 12, 3, 16, 12, 12),
    ("the same size", 12, 12, 1, 12, 12, 12),
    ("no border", 24, 60, 1, 12, 12, 12),
    ("default: no border", 40, 80, 1, 0, 10, 10),
    ("default, portrait", 80, 40, 1, 0, 10, 10),
    ("default, wide result", 40, 60, 1, 0, 10, 16),
    ("default, high result", 40, 60, 1, 0, 16, 6),
]
body = ""
for k, (name, h, w, c, short, oh, ow) in enumerate(views):
    x = picture(h, w, c, 200 + k)
    planes = [Image.fromarray(x[:, :, i].astype(np.float32), "F") for i in range(c)]
    if short or oh == ow:
        to = short or min(oh, ow)
        rh, rw = (to, to * w // h) if h <= w else (to * h // w, to)
        assert rh * w == rw * h and (rh - oh) % 2 == 0 and (rw - ow) % 2 == 0
        top, left = (rh - oh) // 2, (rw - ow) // 2
        parts = [np.asarray(p.resize((rw, rh), Image.BILINEAR))[top:top + oh, left:left + ow] for p in planes]
    else:
        step = min(h / oh, w / ow)
        bh, bw = oh * step, ow * step
        box = ((w - bw) / 2, (h - bh) / 2, (w + bw) / 2, (h + bh) / 2)
        parts = [np.asarray(p.resize((ow, oh), Image.BILINEAR, box=box)) for p in planes]
    y = np.stack(parts, 2)
    print("static const float view_%d[] = {%s};" % (k, numbers(y)))
    body += "    {\"%s\", %d, %d, %d, %d, %d, %d, view_%d, %d},\n" % (name, h, w, c, short, oh, ow, k, 200 + k)
print("\nstatic struct view_row {\n    const char *name;\n    int h, w, c, eval_resize, out_h, out_w;\n"
      "    const float *want;\n    unsigned seed;\n} view_rows[] = {\n%s};\n" % body)

# ---- CMYK: four plain colours, 16 x 16 each
cmyk = np.zeros((16, 64, 4), np.uint8)
for k, ink in enumerate([(0, 0, 0, 0), (200, 20, 20, 10), (10, 180, 160, 40), (30, 60, 90, 120)]):
    cmyk[:, 16 * k:16 * k + 16] = ink
file = io.BytesIO()
Image.fromarray(cmyk, "CMYK").save(file, "JPEG", quality=95)
file = file.getvalue()
assert b"Adobe" in file
rgb = np.asarray(Image.open(io.BytesIO(file)).convert("RGB"))[8, 8::16]
print("static const uint8_t cmyk_file[] = {%s};" % numbers(list(file), "%d"))
print("static const uint8_t cmyk_rgb[4][3] = {%s};" % ", ".join("{%s}" % numbers(v, "%d") for v in rgb))
# ---- PNG: every kind that Pillow writes, of a gradient with noise, so that all filters occur
def png(mode):
    g = np.add.outer(np.arange(9) * 11, np.arange(13) * 7).astype(np.uint8)
    a = np.stack([g + picture(9, 13, 1, 50 + k)[:, :, 0] // (4 + 40 * k) for k in range(4)], 2)
    if mode == "I;16":
        v = a[:, :, 0].astype(np.uint16) * 256 + a[:, :, 1]
        im, rgb = Image.fromarray(v), np.repeat((v >> 8).astype(np.uint8)[:, :, None], 3, 2)
    else:
        im = Image.fromarray(a, "RGBA")
        im = im.convert("RGB").quantize(16 if mode == "P4" else 200) if mode[0] == "P" else im.convert(mode)
        seen = {"RGBA": [0, 1, 2], "LA": [0, 0, 0]}.get(mode)
        rgb = np.asarray(im)[:, :, seen] if seen else np.asarray(im.convert("RGB"))
    b = io.BytesIO()
    im.save(b, "PNG", optimize=mode == "RGB")
    return b.getvalue(), rgb


body = ""
for mode in ("L", "RGB", "RGBA", "LA", "P", "P4", "1", "I;16"):
    file, rgb = png(mode)
    name = mode.lower().replace(";", "")
    print("static const uint8_t png_%s[] = {%s};" % (name, numbers(list(file), "%d")))
    print("static const uint8_t png_%s_rgb[] = {%s};" % (name, numbers(rgb, "%d")))
    body += "    {\"PNG %s\", png_%s, sizeof png_%s, png_%s_rgb},\n" % (mode, name, name, name)
print("\nenum { PNG_H = 9, PNG_W = 13 };\nstatic struct png_row {\n    const char *name;\n    const uint8_t *file;\n"
      "    size_t n;\n"
      "    const uint8_t *rgb;\n} png_rows[] = {\n%s};\n" % body)

print("#endif")
