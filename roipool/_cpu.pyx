# distutils: language = c++
# cython: language_level=3
# cython: boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
# cython: freethreading_compatible=True
"""The CPU engine: makes and executes plans over threads, with the GIL released.

Its functions are those of ``roipool._pooling.Engine``, which documents their arguments. Boxes are
(K, 4) x1, y1, x2, y2, or (K, 5) with an angle, C-contiguous, in float64 for float64 features, else
float32; batch indices are (K,) int64, negative where a box reads nothing.
"""

import threading

import numpy as np

from roipool._dtypes import dtype_name

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
    void* allocate(size_t) noexcept
    void deallocate(void*) noexcept
    void* array_malloc(void*, size_t) noexcept
    void* array_calloc(void*, size_t, size_t) noexcept
    void* array_realloc(void*, void*, size_t) noexcept
    void array_free(void*, void*, size_t) noexcept

    cdef cppclass BlockCache:
        void clear() noexcept
        void set_limit(size_t) noexcept
        size_t limit() noexcept
        size_t bytes() noexcept

    BlockCache& block_cache() noexcept


cdef extern from "kernels/cpu/threads.h" namespace "roipool" nogil:
    int built_with_openmp
    int one_thread_chosen
    int _openmp_threads "roipool::openmp_threads" () noexcept
    bint prepare_for_forks() noexcept


cdef extern from "kernels/cpu/job.h" namespace "roipool" nogil:
    cdef enum Storage:
        float16_storage, bfloat16_storage, float32_storage, float64_storage

    cdef struct AxisPlan:
        int bins
        wide_int size
        wide_int* total

    cdef struct Watch:
        pass

    bint is_interrupted(const Job&) noexcept

    cdef struct Job:
        Watch* watch
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
        bint argmax_is_cell
        bint nan_restarts
        bint outside_is_zero
        wide_int min_non_temporal_bytes
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


cdef extern from "kernels/cpu/interrupts.h" namespace "roipool":
    void set_main_thread(unsigned long) noexcept
    void start_watch(Watch*) noexcept
    int raise_if_interrupted(const Watch*) except -1


cdef extern from "kernels/cpu/plan.h" namespace "roipool" nogil:
    cdef cppclass Definition:
        pass

    cdef enum Entries:
        padded_taps, transposed_taps, taps_with_gradient, listed_samples

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
    void set_whole_map_windows(const AxisPlan&, wide_int)
    void group_by_image(Job*)
    void flatten_if_pointwise(Request*, Job*)


cdef extern from "kernels/cpu/argmax_positions.h" namespace "roipool" nogil:
    void locate_argmax(const Request&, const Job&, wide_int, const wide_int*, void*, void*)
    void identify_argmax(const Request&, const Job&, wide_int, const void*, const void*,
                         wide_int*)


cdef extern from "kernels/cpu/schedule.h" namespace "roipool::ROIPOOL_ENGINE" nogil:
    void schedule_forward(Job&, int)
    void schedule_backward(Job&, int, bint)
    void schedule_boxes(Job&)


cdef extern from "kernels/cpu/engines.h" namespace "roipool" nogil:
    int usable_engines(const Engine**)


# Settings, which `_settings` makes. Each is one word, which calls read once: a change from another
# thread needs no guard.
cdef const Engine* engine = NULL
cdef wide_int min_non_temporal_bytes = 0

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


def lacks_openmp():
    """Return whether this build runs on one thread because no OpenMP was found."""
    return built_with_openmp == 0 and one_thread_chosen == 0


# More than any machine has; OpenMP's own bookkeeping overflows the stack not far beyond.
MAX_THREADS = 1024

# The settings of ``roipool._settings``, where calls find them at once.
cdef int chosen_threads = 0
cdef object refusal = None


def use_threads(int number):
    """Set how many threads calls may use; 0: as many as OpenMP itself would."""
    global chosen_threads
    chosen_threads = number


cpdef int num_threads():
    """Return how many threads a call may use."""
    if built_with_openmp == 0:
        return 1
    return chosen_threads if chosen_threads > 0 else min(_openmp_threads(), 1024)


def refuse_calls(reason):
    """Make every call a ValueError with this text."""
    global refusal
    refusal = reason


def instruction_sets():
    """Return the names of the engines that this processor can run, best first."""
    cdef const Engine* engines[3]
    cdef int count = usable_engines(engines)
    return tuple(engines[i].name.decode() for i in range(count))


def use_instruction_set(name):
    """Choose one of :func:`instruction_sets`; results may differ by rounding."""
    global engine
    cdef const Engine* engines[3]
    cdef int count = usable_engines(engines)
    for i in range(count):
        if engines[i].name.decode() == name:
            engine = engines[i]
            return
    raise ValueError(f"there is no instruction set {name!r} among {instruction_sets()}")


def instruction_set():
    """Return the name of the engine in use."""
    return engine.name.decode()


def use_non_temporal_stores(min_bytes):
    """Choose from how many bytes on a result is written by non-temporal stores."""
    global min_non_temporal_bytes
    min_non_temporal_bytes = min_bytes


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


def set_cache_limit(size_t n_bytes):
    """Choose how much freed memory is cached for the next calls; 0 caches none."""
    block_cache().set_limit(n_bytes)


def cache_limit():
    """Return what :func:`set_cache_limit` chose, in bytes."""
    return block_cache().limit()


def cached_bytes():
    """Return how much freed memory is cached now."""
    return block_cache().bytes()


def free_cached_memory():
    """Return all cached memory to the system."""
    with nogil:
        block_cache().clear()


def empty_array(shape, dtype):
    """Return uninitialised memory; MemoryError if it cannot be allocated."""
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
        self.start = <char*>allocate(size)
        if self.start == NULL:
            raise MemoryError(f"a call needs {size} bytes for its plan or scratch memory")

    def __dealloc__(self):
        deallocate(self.start)


def contiguous(array, dtype):
    """Return an array in C order at an aligned address: the same one where it is so already."""
    result = np.ascontiguousarray(array, dtype)
    return result if cnp.PyArray_ISALIGNED(result) else result.copy()


def contiguous_copy(array, dtype):
    """Return a copy of an array in C order, aligned."""
    return np.array(array, dtype, order="C")


def whole_numbers(values, end):
    """Return numbers as int64, and the first row that is not right.

    That is -1 if all are whole numbers from 0 up to, not including, `end`.
    """
    values = np.ascontiguousarray(values, np.float64)
    numbers = np.empty(len(values), np.int64)
    cdef const double* value = <const double*>address(values)
    cdef wide_int* number = <wide_int*>address(numbers)
    cdef wide_int limit = end
    cdef wide_int row
    cdef double image  # read once: the caller may change it meanwhile
    for row in range(len(values)):
        image = value[row]
        if not (0 <= image < limit) or <wide_int>image != image:
            return numbers, row
        number[row] = <wide_int>image
    return numbers, -1


def cut_numbers(values, end):
    """Return numbers cut to whole ones as int64, -1 where that is not in [0, end).

    And the first row where it is not, or -1.
    """
    values = np.ascontiguousarray(values, np.float64)
    numbers = np.empty(len(values), np.int64)
    cdef const double* value = <const double*>address(values)
    cdef wide_int* number = <wide_int*>address(numbers)
    cdef wide_int limit = end
    cdef wide_int row, wrong = -1
    cdef double image  # read once: the caller may change it meanwhile
    for row in range(len(values)):
        image = value[row]
        if -1 < image < limit:
            number[row] = <wide_int>image
        else:
            number[row] = -1
            wrong = row if wrong < 0 else wrong
    return numbers, wrong


cdef class Call:
    """One call's job, its plans, and the memory that holds them."""
    cdef Job job
    cdef Watch watch
    cdef Request request
    cdef int threads
    cdef object boxes, batch_indices
    cdef Memory bins, entries

    def __cinit__(self, dtype, batch_indices, map_shape, output_size, layout):
        cdef Job* job = &self.job
        if refusal is not None:
            raise ValueError(refusal)
        memset(job, 0, sizeof(Job))
        start_watch(&self.watch)
        job.watch = &self.watch
        self.batch_indices = batch_indices
        job.storage = _STORAGE[dtype_name(dtype)]
        job.channels_last = layout == "NHWC"
        job.boxes = len(batch_indices)
        job.images = map_shape[0]
        job.channels = map_shape[3] if job.channels_last else map_shape[1]
        job.rows.size, job.columns.size = map_shape[1:3] if job.channels_last else map_shape[2:]
        job.rows.bins, job.columns.bins = output_size
        job.box_image = <wide_int*>address(batch_indices)
        job.min_non_temporal_bytes = min_non_temporal_bytes
        # Waking a thread for less work than this costs more than it saves.
        work = job.boxes * job.channels * job.rows.bins * job.columns.bins
        self.threads = max(1, min(num_threads(), work // 16384))
        self.request.images = job.box_image

    cdef define(self, definition, boxes):
        """Set the definition and its options, and the boxes."""
        self.boxes = boxes
        self.request.definition = <Definition>definition_named(definition.name.encode())
        self.request.double_precision = self.job.storage == float64_storage
        self.request.scale = definition.scale
        self.request.sampling[0], self.request.sampling[1] = definition.sampling
        self.request.aligned = definition.aligned
        self.request.angle_scale = definition.angle_scale
        flatten_if_pointwise(&self.request, &self.job)
        self.request.boxes = address(boxes)

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
            if not is_interrupted(self.job):
                count_entries(self.request, self.job, box)
        raise_if_interrupted(&self.watch)
        self.entries = Memory(prepare_entries(self.request, &self.job, NULL))
        prepare_entries(self.request, &self.job, self.entries.start)
        for box in prange(boxes, nogil=True, num_threads=threads):
            if not is_interrupted(self.job):
                write_entries(self.request, self.job, box)
        raise_if_interrupted(&self.watch)

    cdef use_whole_map(self):
        """Without a plan: any cell may be written."""
        self.prepare_bins(transposed_taps)
        set_whole_map_windows(self.job.rows, self.job.boxes)
        set_whole_map_windows(self.job.columns, self.job.boxes)

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
                if not is_interrupted(job[0]):
                    runner(job[0], task, mine)
        raise_if_interrupted(&self.watch)

    cdef locate(self, const wide_int* argmax, void* y, void* x):
        cdef wide_int box
        for box in prange(self.job.boxes, nogil=True, num_threads=self.threads):
            if not is_interrupted(self.job):
                locate_argmax(self.request, self.job, box, argmax, y, x)
        raise_if_interrupted(&self.watch)

    cdef identify(self, const void* y, const void* x, wide_int* argmax):
        cdef wide_int box
        for box in prange(self.job.boxes, nogil=True, num_threads=self.threads):
            if not is_interrupted(self.job):
                identify_argmax(self.request, self.job, box, y, x, argmax)
        raise_if_interrupted(&self.watch)

    def max_samples_per_bin(self):
        """Return the maximum number of samples of a bin."""
        rows, columns = self.totals(self.job.rows), self.totals(self.job.columns)
        return int((rows.max(axis=1) * columns.max(axis=1)).max())

    def sample_indices_in_range(self, argmax):
        """Return whether each index is below its bin's number of samples."""
        rows = self.totals(self.job.rows)[:, None, :, None]
        columns = self.totals(self.job.columns)[:, None, None, :]
        if self.job.channels_last:
            rows, columns = np.moveaxis(rows, 1, 3), np.moveaxis(columns, 1, 3)
        return argmax < rows * columns

    cdef totals(self, AxisPlan plan):
        cdef cnp.npy_intp shape[2]
        shape[0], shape[1] = self.job.boxes, plan.bins
        return cnp.PyArray_SimpleNewFromData(2, shape, cnp.NPY_INT64, plan.total)


cdef Call defined_call(features_or_gradient, map_shape, regions, pooling):
    """Return a call with its definition set, and no plan yet."""
    cdef Call call = Call(features_or_gradient.dtype, regions.batch_indices, map_shape,
                          pooling.output_size, pooling.layout)
    call.define(pooling.definition, regions.boxes)
    return call


def average(features, regions, pooling, out):
    """Pool by weighted averages."""
    cdef Call call = defined_call(features, features.shape, regions, pooling)
    if out.size == 0:
        return
    if call.job.images == 0:
        out[...] = pooling.empty_value
        return
    call.plan(padded_taps)
    call.job.features = address(features)
    call.job.output = address(out)
    call.job.empty_value = pooling.empty_value
    schedule_forward(call.job, call.threads)
    call.run(engine.average_forward)


def average_backward(grad_output, regions, pooling, out):
    """Write the gradient of an average with respect to the features."""
    cdef Call call = defined_call(grad_output, out.shape, regions, pooling)
    if out.size == 0:
        return
    call.plan(transposed_taps)
    call.job.grad_output = address(grad_output)
    call.job.output = address(out)
    schedule_backward(call.job, call.threads, False)
    call.run(engine.average_backward)


def average_backward_boxes(grad_output, features, regions, pooling):
    """Return the gradient of an average with respect to each number of each box."""
    cdef Call call = defined_call(grad_output, features.shape, regions, pooling)
    sums = np.zeros(regions.boxes.shape, np.float64)
    if features.size and grad_output.size:
        call.plan(taps_with_gradient)
        call.job.grad_output = address(grad_output)
        call.job.features = address(features)
        call.job.grad_boxes = <double*>address(sums)
        schedule_boxes(call.job)
        call.run(engine.average_backward_boxes)
    return sums.astype(regions.boxes.dtype)


def maximum(features, regions, pooling, out, *, return_argmax):
    """Pool by maxima; return the argmax if it is asked for."""
    cdef Call call = defined_call(features, features.shape, regions, pooling)
    rules = pooling.rules
    if out.size == 0 or call.job.images == 0:
        out[...] = pooling.empty_value
        if not return_argmax:
            return None
        argmax = empty_array(out.shape, np.int32)
        argmax[...] = -1
        return argmax
    call.plan(listed_samples)
    argmax = None
    if return_argmax:
        cells = call.job.rows.size * call.job.columns.size
        indices = cells if rules.argmax_is_cell else call.max_samples_per_bin()
        wide = indices > np.iinfo(np.int32).max
        argmax = empty_array(out.shape, np.int64 if wide else np.int32)
    call.job.features = address(features)
    call.job.output = address(out)
    call.job.argmax = address(argmax)
    call.job.wide_argmax = return_argmax and argmax.dtype == np.int64
    call.job.empty_value = pooling.empty_value
    call.job.lowest = rules.lowest
    call.job.argmax_is_cell = rules.argmax_is_cell
    call.job.nan_restarts = rules.nan_restarts
    call.job.outside_is_zero = rules.outside_is_zero
    schedule_forward(call.job, call.threads)
    call.run(engine.maximum_forward)
    return argmax


cdef scatter_argmax(Call call, grad_output, argmax, out):
    """Add each gradient to the cells of its argmax."""
    call.job.grad_output = address(grad_output)
    call.job.output = address(out)
    call.job.argmax = address(argmax)
    call.job.wide_argmax = argmax.dtype == np.int64
    schedule_backward(call.job, call.threads, True)
    call.run(engine.maximum_backward)


def maximum_backward(grad_output, argmax, regions, pooling, out):
    """Write the gradient of a maximum with respect to the features."""
    cdef Call call = defined_call(grad_output, out.shape, regions, pooling)
    if out.size == 0:
        return
    call.plan(listed_samples)
    call.job.argmax_is_cell = pooling.rules.argmax_is_cell
    if not call.job.argmax_is_cell and not np.all(call.sample_indices_in_range(argmax)):
        raise ValueError("argmax holds numbers beyond its bins' samples: it is not that of "
                         "these rois, scale and sampling_ratio")
    scatter_argmax(call, grad_output, argmax, out)


def unpool(grad_output, argmax, batch_indices, layout, out):
    """Write the sums of all gradients at the cell of the map that their argmax names."""
    bins = grad_output.shape[1:3] if layout == "NHWC" else grad_output.shape[2:]
    cdef Call call = Call(grad_output.dtype, batch_indices, out.shape, bins, layout)
    if out.size == 0:
        return
    call.use_whole_map()
    call.job.argmax_is_cell = True
    scatter_argmax(call, grad_output, argmax, out)


def argmax_positions(argmax, regions, pooling, input_shape):
    """Return the positions y and x, in map cells, of samples given by index; NCHW."""
    cdef Call call = defined_call(regions.boxes, input_shape, regions, pooling)
    argmax = np.ascontiguousarray(argmax, np.int64)
    y = empty_array(argmax.shape, regions.boxes.dtype)
    x = empty_array(argmax.shape, regions.boxes.dtype)
    if argmax.size == 0:
        return y, x
    call.plan(listed_samples)
    call.locate(<const wide_int*>address(argmax), address(y), address(x))
    return y, x


def argmax_at(y, x, regions, pooling, input_shape):
    """Return the indices of the samples at positions, -1 where there is none; NCHW."""
    cdef Call call = defined_call(regions.boxes, input_shape, regions, pooling)
    argmax = empty_array(y.shape, np.int64)
    if argmax.size == 0:
        return argmax
    call.plan(listed_samples)
    call.identify(address(y), address(x), <wide_int*>address(argmax))
    return argmax


use_instruction_set(instruction_sets()[0])
set_main_thread(threading.main_thread().ident)
if not prepare_for_forks():
    raise MemoryError("there is no memory for the handlers of forks")
