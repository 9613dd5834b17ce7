# distutils: language = c++
# cython: language_level=3
# cython: boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
# cython: freethreading_compatible=True
"""The backend for NumPy arrays: plans and engines run over threads with the GIL released.

Arguments are checked and converted already: boxes are (K, 4) x1, y1, x2, y2, C-contiguous, in
float64 for float64 maps, else float32; images are (K,) int64, negative where a box reads nothing;
maps and pooled values are C-contiguous in their layout.
"""

import os

import numpy as np

from roipool._environment import whole_number
from roipool._layout import dtype_name, height_width, pooled_shape

cimport numpy as cnp
from cython.parallel cimport parallel, prange, threadid
from cpython.pycapsule cimport PyCapsule_New
from libc.string cimport memset, strcpy

cnp.import_array()

ctypedef long long wide_int


cdef extern from "numpy/arrayobject.h":
    ctypedef struct PyDataMemAllocator:
        void* (*malloc)(void*, size_t) noexcept
        void* (*calloc)(void*, size_t, size_t) noexcept
        void* (*realloc)(void*, void*, size_t) noexcept
        void (*free)(void*, void*, size_t) noexcept

    ctypedef struct PyDataMem_Handler:
        char name[127]
        unsigned char version
        PyDataMemAllocator allocator

    object PyDataMem_SetHandler(object)


cdef extern from "kernels/cpu/memory.h" namespace "roipool" nogil:
    void* take_memory(size_t) noexcept
    void give_memory(void*) noexcept
    void* array_malloc(void*, size_t) noexcept
    void* array_calloc(void*, size_t, size_t) noexcept
    void* array_realloc(void*, void*, size_t) noexcept
    void array_free(void*, void*, size_t) noexcept
    void limit_kept_memory(size_t) noexcept


cdef extern from "kernels/cpu/threads.h" namespace "roipool" nogil:
    int built_with_openmp
    int _openmp_threads "roipool::openmp_threads" ()


cdef extern from "kernels/cpu/job.h" namespace "roipool" nogil:
    cdef enum Storage:
        float16_storage, bfloat16_storage, float32_storage, float64_storage

    cdef struct AxisPlan:
        int bins
        wide_int size
        wide_int* total

    cdef struct Job:
        Storage storage
        bint channels_last
        wide_int images, channels, boxes
        AxisPlan rows, columns
        const void* features
        const void* grad_output
        void* output
        void* argmax
        bint wide_argmax
        double* grad_boxes
        const wide_int* box_image
        double empty_value
        double lowest
        bint winner_is_cell
        bint nan_restarts
        bint outside_is_zero
        wide_int fewest_streamed_bytes
        wide_int tasks
        wide_int scratch_bytes

    ctypedef void (*Runner "roipool::Runner")(const Job&, wide_int, char*) noexcept nogil

    cdef struct Engine:
        const char* name
        Runner average_forward
        Runner average_backward
        Runner average_backward_boxes
        Runner maximum_forward
        Runner maximum_backward


cdef extern from "kernels/cpu/plan.h" namespace "roipool" nogil:
    cdef cppclass Definition:
        pass

    cdef enum Entries:
        padded_taps, turned_taps, taps_with_gradient, listed_samples

    cdef struct Request:
        Definition definition
        bint double_precision
        Entries entries
        double scale
        wide_int sampling[2]
        bint aligned
        double angle_scale
        const void* boxes
        const wide_int* images

    struct DefinitionRow:
        const char* name
        const char* kind
        int samples_per_ratio
        int max_per_cell

    int definition_count
    const DefinitionRow* definition_rows
    int definition_named(const char*)
    wide_int prepare_bins(const Request&, Job*, char*)
    void count_entries(const Request&, const Job&, wide_int)
    wide_int prepare_entries(const Request&, Job*, char*)
    void write_entries(const Request&, const Job&, wide_int)
    void open_windows(const AxisPlan&, wide_int)
    void group_by_image(Job*)
    void flatten_if_pointwise(Request*, Job*)


cdef extern from "kernels/cpu/winners.h" namespace "roipool" nogil:
    void locate_winners(const Request&, const Job&, wide_int, const wide_int*, void*, void*)
    void identify_winners(const Request&, const Job&, wide_int, const void*, const void*,
                          wide_int*)


cdef extern from "kernels/cpu/schedule.h" namespace "roipool::ROIPOOL_ISA" nogil:
    void schedule_forward(Job&, int)
    void schedule_backward(Job&, int, bint)
    void schedule_boxes(Job&)


cdef extern from "kernels/cpu/engines.h" namespace "roipool" nogil:
    int usable_engines(const Engine**)


cdef const Engine* engine = NULL
cdef wide_int fewest_streamed_bytes

_STORAGE = {
    "float16": float16_storage,
    "bfloat16": bfloat16_storage,
    "float32": float32_storage,
    "float64": float64_storage,
}


def definition_traits():
    """Return kind, samples_per_ratio and max_per_cell of each row of kernels/definitions.h."""
    rows = {}
    for i in range(definition_count):
        row = definition_rows[i]
        rows[row.name.decode()] = (row.kind.decode(), row.samples_per_ratio, row.max_per_cell)
    return rows


def openmp_threads():
    """Return the number of threads that OpenMP itself would use; 1 without OpenMP."""
    return _openmp_threads()


def has_openmp():
    """Return whether this build runs on several threads."""
    return built_with_openmp != 0


def instruction_sets():
    """Return the names of the engines that this processor can run, best first."""
    cdef const Engine* engines[3]
    cdef int count = usable_engines(engines)
    return tuple(engines[i].name.decode() for i in range(count))


def use_instruction_set(name):
    """Choose an engine by name; results may differ from another's by rounding."""
    global engine
    cdef const Engine* engines[3]
    cdef int count = usable_engines(engines)
    for i in range(count):
        if engines[i].name.decode() == name:
            engine = engines[i]
            return
    raise ValueError(f"ROIPOOL_ISA is {name!r}; this machine has {', '.join(instruction_sets())}")


def instruction_set():
    """Return the name of the engine in use."""
    return engine.name.decode()


def stream_results(fewest_bytes):
    """Choose from how many bytes on a result goes around the caches."""
    global fewest_streamed_bytes
    fewest_streamed_bytes = fewest_bytes


cdef void* address(array) noexcept:
    return NULL if array is None else cnp.PyArray_DATA(<cnp.ndarray>array)


cdef PyDataMem_Handler handler
strcpy(handler.name, "roipool")
handler.version = 1
handler.allocator.malloc = array_malloc
handler.allocator.calloc = array_calloc
handler.allocator.realloc = array_realloc
handler.allocator.free = array_free
array_memory = PyCapsule_New(&handler, "mem_handler", NULL)


def keep_memory(mebibytes):
    """Choose how much freed memory is kept for the next calls; 0 keeps none."""
    limit_kept_memory(<size_t>mebibytes << 20)


def empty_array(shape, dtype):
    """Return uninitialised memory; any size that cannot be had is a MemoryError."""
    before = PyDataMem_SetHandler(array_memory)
    try:
        return np.empty(shape, dtype)
    except ValueError as error:  # NumPy's answer to sizes beyond the address space
        raise MemoryError(f"an array of shape {shape} is too large: {error}") from None
    finally:
        PyDataMem_SetHandler(before)


cdef class Memory:
    """Uninitialised bytes of one call, at a cache line's start."""
    cdef char* start

    def __cinit__(self, wide_int size):
        self.start = <char*>take_memory(size)
        if self.start == NULL:
            raise MemoryError(f"a call needs {size} bytes for its plan or scratch memory")

    def __dealloc__(self):
        give_memory(self.start)


def image_numbers(values, images):
    """Return contiguous float64 numbers as int64, and the first row that names no image.

    That is -1 if all are whole numbers from 0 up to, not including, `images`.
    """
    numbers = np.empty(len(values), np.int64)
    cdef const double* value = <const double*>address(values)
    cdef wide_int* number = <wide_int*>address(numbers)
    cdef wide_int end = images
    cdef wide_int row
    for row in range(len(values)):
        if not (0 <= value[row] < end):
            return numbers, row
        number[row] = <wide_int>value[row]
        if number[row] != value[row]:
            return numbers, row
    return numbers, -1


cdef class Call:
    """One call's job, its plans, and the memory that holds them."""
    cdef Job job
    cdef Request request
    cdef int threads
    cdef object boxes, images
    cdef Memory bins, entries

    def __cinit__(self, dtype, boxes, images, geometry, map_shape, output_size, layout, threads):
        cdef Job* job = &self.job
        memset(job, 0, sizeof(Job))
        self.boxes, self.images = boxes, images
        job.storage = _STORAGE[dtype_name(dtype)]
        job.channels_last = layout == "NHWC"
        job.boxes = boxes.shape[0]
        job.images = map_shape[0]
        job.channels = map_shape[3] if job.channels_last else map_shape[1]
        job.rows.size, job.columns.size = map_shape[1:3] if job.channels_last else map_shape[2:]
        job.rows.bins, job.columns.bins = output_size
        job.box_image = <wide_int*>address(images)
        job.fewest_streamed_bytes = fewest_streamed_bytes
        # Waking a thread for less work than this costs more than it saves.
        work = job.boxes * job.channels * job.rows.bins * job.columns.bins
        self.threads = max(1, min(threads, work // 16384))
        if geometry is not None:
            self.request.definition = <Definition>definition_named(geometry.definition.encode())
            self.request.double_precision = job.storage == float64_storage
            self.request.scale = geometry.scale
            self.request.sampling[0], self.request.sampling[1] = geometry.sampling
            self.request.aligned = geometry.aligned
            self.request.angle_scale = geometry.angle_scale
            flatten_if_pointwise(&self.request, job)
        self.request.boxes = address(boxes)
        self.request.images = job.box_image

    cdef prepare_bins(self, Entries entries):
        self.request.entries = entries
        self.bins = Memory(prepare_bins(self.request, &self.job, NULL))
        prepare_bins(self.request, &self.job, self.bins.start)
        group_by_image(&self.job)

    cdef plan(self, Entries entries):
        cdef wide_int box
        cdef wide_int boxes = self.job.boxes
        # A parallel region costs the wait for its slowest thread: planning must be worth that.
        cdef int threads = max(1, min(self.threads, boxes // 256))
        self.prepare_bins(entries)
        for box in prange(boxes, nogil=True, num_threads=threads):
            count_entries(self.request, self.job, box)
        self.entries = Memory(prepare_entries(self.request, &self.job, NULL))
        prepare_entries(self.request, &self.job, self.entries.start)
        for box in prange(boxes, nogil=True, num_threads=threads):
            write_entries(self.request, self.job, box)

    cdef plan_nothing(self):
        """Without a plan any cell may be written."""
        self.prepare_bins(turned_taps)
        open_windows(self.job.rows, self.job.boxes)
        open_windows(self.job.columns, self.job.boxes)

    cdef run(self, Runner runner):
        """Run the tasks."""
        cdef wide_int task
        cdef Job* job = &self.job
        cdef char* mine = NULL
        cdef int threads = max(1, min(self.threads, job.tasks))
        cdef Memory scratch = Memory(job.scratch_bytes * threads)
        with nogil, parallel(num_threads=threads):
            mine = scratch.start + threadid() * job.scratch_bytes
            for task in prange(job.tasks, schedule="dynamic", chunksize=1):
                runner(job[0], task, mine)

    cdef locate(self, const wide_int* argmax, void* y, void* x):
        cdef wide_int box
        for box in prange(self.job.boxes, nogil=True, num_threads=self.threads):
            locate_winners(self.request, self.job, box, argmax, y, x)

    cdef identify(self, const void* y, const void* x, wide_int* argmax):
        cdef wide_int box
        for box in prange(self.job.boxes, nogil=True, num_threads=self.threads):
            identify_winners(self.request, self.job, box, y, x, argmax)

    def largest_grid(self):
        """Return the greatest number of samples that any bin has."""
        rows, columns = self.totals(self.job.rows), self.totals(self.job.columns)
        return int((rows.max(axis=1) * columns.max(axis=1)).max())

    def sample_numbers_in_range(self, argmax):
        """Return whether each number is below its bin's number of samples."""
        rows = self.totals(self.job.rows)[:, None, :, None]
        columns = self.totals(self.job.columns)[:, None, None, :]
        if self.job.channels_last:
            rows, columns = np.moveaxis(rows, 1, 3), np.moveaxis(columns, 1, 3)
        return argmax < rows * columns

    cdef totals(self, AxisPlan plan):
        cdef cnp.npy_intp shape[2]
        shape[0], shape[1] = self.job.boxes, plan.bins
        return cnp.PyArray_SimpleNewFromData(2, shape, cnp.NPY_INT64, plan.total)


def average(features, boxes, images, geometry, output_size, *, layout, empty_value, threads, out):
    """Pool by weighted averages; return the pooled values."""
    cdef Call call = Call(features.dtype, boxes, images, geometry, features.shape, output_size,
                          layout, threads)
    if out is None:
        out = empty_array(pooled_shape(len(boxes), call.job.channels, output_size, layout),
                          features.dtype)
    if out.size == 0:
        return out
    call.plan(padded_taps)
    call.job.features = address(features)
    call.job.output = address(out)
    call.job.empty_value = empty_value
    if call.job.images == 0:
        out[...] = empty_value
        return out
    schedule_forward(call.job, call.threads)
    call.run(engine.average_forward)
    return out


def average_backward(grad_output, boxes, images, geometry, input_shape, *, layout, threads, out):
    """Return the gradient of :func:`average` with respect to the features."""
    cdef Call call = Call(grad_output.dtype, boxes, images, geometry, input_shape,
                          height_width(grad_output.shape, layout), layout, threads)
    if out is None:
        out = empty_array(input_shape, grad_output.dtype)
    if out.size == 0:
        return out
    call.plan(turned_taps)
    call.job.grad_output = address(grad_output)
    call.job.output = address(out)
    schedule_backward(call.job, call.threads, False)
    call.run(engine.average_backward)
    return out


def average_backward_boxes(grad_output, features, boxes, images, geometry, *, layout, threads):
    """Return the gradient of :func:`average` with respect to the numbers of each box."""
    cdef Call call = Call(grad_output.dtype, boxes, images, geometry, features.shape,
                          height_width(grad_output.shape, layout), layout, threads)
    sums = np.zeros(boxes.shape, np.float64)
    if features.size and grad_output.size:
        call.plan(taps_with_gradient)
        call.job.grad_output = address(grad_output)
        call.job.features = address(features)
        call.job.grad_boxes = <double*>address(sums)
        schedule_boxes(call.job)
        call.run(engine.average_backward_boxes)
    return sums.astype(boxes.dtype)


def maximum(features, boxes, images, geometry, output_size, *, layout, lowest, empty_value,
            winner_is_cell, outside_is_zero, return_argmax, threads, out, nan_restarts=False):
    """Pool by maxima; return the pooled values and, if asked for, the winners (else None)."""
    cdef Call call = Call(features.dtype, boxes, images, geometry, features.shape, output_size,
                          layout, threads)
    shape = pooled_shape(len(boxes), call.job.channels, output_size, layout)
    if out is None:
        out = empty_array(shape, features.dtype)
    argmax = None
    if out.size == 0:
        return out, empty_array(shape, np.int32) if return_argmax else None
    call.plan(listed_samples)
    if return_argmax:
        cells = call.job.rows.size * call.job.columns.size
        wide = (cells if winner_is_cell else call.largest_grid()) > np.iinfo(np.int32).max
        argmax = empty_array(shape, np.int64 if wide else np.int32)
    call.job.features = address(features)
    call.job.output = address(out)
    call.job.argmax = address(argmax)
    call.job.wide_argmax = return_argmax and argmax.dtype == np.int64
    call.job.empty_value = empty_value
    call.job.lowest = lowest
    call.job.winner_is_cell = winner_is_cell
    call.job.nan_restarts = nan_restarts
    call.job.outside_is_zero = outside_is_zero
    if call.job.images == 0:
        out[...] = empty_value
        if return_argmax:
            argmax[...] = -1
        return out, argmax
    schedule_forward(call.job, call.threads)
    call.run(engine.maximum_forward)
    return out, argmax


def maximum_backward(grad_output, argmax, boxes, images, geometry, input_shape, *, layout,
                     winner_is_cell, threads, out):
    """Return the gradient of :func:`maximum` with respect to the features.

    Without a geometry, argmax names cells anywhere in the map and each gets the whole gradient.
    """
    cdef Call call = Call(grad_output.dtype, boxes, images, geometry, input_shape,
                          height_width(grad_output.shape, layout), layout, threads)
    if out is None:
        out = empty_array(input_shape, grad_output.dtype)
    if out.size == 0:
        return out
    if geometry is None:
        call.plan_nothing()
    else:
        call.plan(listed_samples)
        if not winner_is_cell and not np.all(call.sample_numbers_in_range(argmax)):
            raise ValueError("argmax holds numbers beyond its bins' samples: it is not that of "
                             "these rois, scale and sampling_ratio")
    call.job.grad_output = address(grad_output)
    call.job.output = address(out)
    call.job.argmax = address(argmax)
    call.job.wide_argmax = argmax.dtype == np.int64
    call.job.winner_is_cell = winner_is_cell
    schedule_backward(call.job, call.threads, True)
    call.run(engine.maximum_backward)
    return out


def locate(argmax, boxes, images, geometry, input_shape, *, threads):
    """Return the positions y and x, in map cells, of winning samples; NCHW."""
    cdef Call call = Call(boxes.dtype, boxes, images, geometry, input_shape, argmax.shape[2:],
                          "NCHW", threads)
    argmax = np.ascontiguousarray(argmax, np.int64)
    y = empty_array(argmax.shape, boxes.dtype)
    x = empty_array(argmax.shape, boxes.dtype)
    if argmax.size == 0:
        return y, x
    call.plan(listed_samples)
    call.locate(<const wide_int*>address(argmax), address(y), address(x))
    return y, x


def identify(y, x, boxes, images, geometry, input_shape, *, threads):
    """Return the numbers of the samples at the given positions, -1 where there is none; NCHW."""
    cdef Call call = Call(boxes.dtype, boxes, images, geometry, input_shape, y.shape[2:], "NCHW",
                          threads)
    argmax = empty_array(y.shape, np.int64)
    if argmax.size == 0:
        return argmax
    call.plan(listed_samples)
    call.identify(address(y), address(x), <wide_int*>address(argmax))
    return argmax


# Larger results are in no cache when they are read.
LARGE_RESULT_BYTES = 2**24
stream_results(LARGE_RESULT_BYTES)

kept_mebibytes = whole_number("ROIPOOL_KEPT_MIB", 0, 2**20)
keep_memory(1024 if kept_mebibytes is None else kept_mebibytes)
use_instruction_set(os.environ.get("ROIPOOL_ISA") or instruction_sets()[0])
