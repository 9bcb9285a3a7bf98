"""Measures the time of training steps, on a CPU or a GPU.

A GPU works on a queue. Nothing waits between the steps, so the host runs ahead as it does in training. The host's
clock measures the whole from start() to stop(), which wait for the GPU. The GPU's own clock measures single steps.
"""

import statistics
import time

import torch


class Clock:
    def __init__(self, gpu):
        self.gpu, self.marks, self.seconds, self.cpu = gpu, [], 0.0, 0.0

    def start(self):
        if self.gpu:
            torch.cuda.synchronize()
        self.step()
        self.from_s, self.from_cpu = time.perf_counter(), time.process_time()

    def step(self):
        if self.gpu:
            event = torch.cuda.Event(enable_timing=True)
            event.record()
            self.marks.append(event)
        else:
            self.marks.append(time.perf_counter())

    def stop(self):
        if self.gpu:
            torch.cuda.synchronize()
        self.seconds, self.cpu = time.perf_counter() - self.from_s, time.process_time() - self.from_cpu

    def median(self):
        pairs = zip(self.marks, self.marks[1:])
        return statistics.median(a.elapsed_time(b) * 1e-3 if self.gpu else b - a for a, b in pairs)
