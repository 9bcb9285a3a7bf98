/* cudnn_emulated.h -- what cudnn_emulated.cc asks of the build that it is in. */
#ifndef RD_CUDNN_EMULATED_H
#define RD_CUDNN_EMULATED_H

#include "device_emulated.h"
#include "cudnn.h"
#include <functional>

/* The reason of the last failure. */
extern char rd_emulated_dnn_why[200];
/* Returns whether a test asked that this call fails. */
bool rd_emulated_dnn_fails(const char *call);
/* Runs work on the handle's stream, now or later. */
cudnnStatus_t rd_emulated_dnn_queue(cudnnHandle_t h, std::function<cudnnStatus_t()> work);

#endif
