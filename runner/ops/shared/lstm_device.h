/* lstm_device.h -- one unit of an LSTM in one time step, for kernels. The formulas are in cell.h.
 * */
#ifndef RD_LSTM_DEVICE_H
#define RD_LSTM_DEVICE_H

#include "../../engine/gpu/kernel.h"

/* The gates after activation, and what follows from them. */
struct rd_lstm_unit {
    float i, j, f, o, c, tc, m;
};

static __device__ inline float rd_sigmoid(float x)
{
    return 1.0f / (1.0f + expf(-x));
}

/* Computes a unit from its pre-activations. c_prev: 0 before the first step. */
static __device__ inline rd_lstm_unit rd_lstm_unit_of(float i, float j, float f, float o,
                                                      float c_prev)
{
    rd_lstm_unit u;
    u.i = rd_sigmoid(i);
    u.j = tanhf(j);
    u.f = rd_sigmoid(f + 1.0f);
    u.o = rd_sigmoid(o);
    u.c = c_prev * u.f + u.i * u.j;
    u.tc = tanhf(u.c);
    u.m = u.o * u.tc;
    return u;
}

/* Gradients of the pre-activations, and of the state before the step. */
struct rd_lstm_unit_grad {
    float i, j, f, o, c_prev;
};

/* Goes back through a unit. Of u it reads the gates and tc. dm: gradient of m; dc: gradient of c
 * from the later step. */
static __device__ inline rd_lstm_unit_grad rd_lstm_unit_back(const rd_lstm_unit &u, float c_prev,
                                                             float dm, float dc)
{
    rd_lstm_unit_grad d;
    const float dtc = dm * u.o * (1.0f - u.tc * u.tc) + dc;
    d.i = dtc * u.j * u.i * (1.0f - u.i);
    d.j = dtc * u.i * (1.0f - u.j * u.j);
    d.f = dtc * u.f * (1.0f - u.f) * c_prev;
    d.o = dm * u.tc * u.o * (1.0f - u.o);
    d.c_prev = dtc * u.f;
    return d;
}

#endif
