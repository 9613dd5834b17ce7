# distutils: language = c++
# cython: language_level=3
# cython: boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
# cython: freethreading_compatible=True
"""The CPU engine: makes and executes plans over threads, with the GIL released.

Its functions are those of ``roipool._engines.Engine``, which documents their arguments. Boxes are
C-contiguous, in float64 for float64 features, else float32: (K, 4) x1, y1, x2, y2, then the offsets
of bins if these are moved; (K, 5) with an angle; or of volumes (K, 6) x1, y1, z1, x2, y2, z2. Batch
indices are (K,) int64, negative where a box reads nothing.
"""

import threading

import numpy as np

from roipool._dtypes import dtype_name

cimport cython
cimport numpy as cnp
from cython.parallel cimport parallel, prange
from cpython.dict cimport PyDict_Next
from cpython.exc cimport PyErr_Clear
from cpython.pycapsule cimport PyCapsule_GetPointer, PyCapsule_New
from cpython.ref cimport Py_INCREF, PyObject
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.math cimport floor
from libc.string cimport memcpy, memset, strcpy
from libcpp.string cimport string
from libcpp.vector cimport vector

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
    const size_t min_cached_bytes
    void* array_malloc(void*, size_t) noexcept
    void* array_calloc(void*, size_t, size_t) noexcept
    void* array_realloc(void*, void*, size_t) noexcept
    void array_free(void*, void*, size_t) noexcept

    cdef cppclass BlockCache:
        void clear() noexcept
        void set_limit(size_t) noexcept
        void set_lent_limit(size_t) noexcept
        size_t limit() noexcept
        size_t bytes() noexcept
        size_t lent_bytes() noexcept

    BlockCache& block_cache() noexcept
    void* allocate(size_t) noexcept
    void deallocate(void*) noexcept


cdef extern from "kernels/cpu/threads.h" namespace "roipool" nogil:
    int built_with_openmp
    int one_thread_chosen
    int _openmp_threads "roipool::openmp_threads" () noexcept
    int swap_thread_limit(int) noexcept
    int limited_threads(int) noexcept

    cppclass atomic_bool "std::atomic<bool>":
        bint load() noexcept
        void store(bint) noexcept

    atomic_bool& _uses_pool "roipool::uses_pool" () noexcept


cdef extern from "kernels/config.h" namespace "roipool" nogil:
    unsigned int bfloat16_of_float_bits(unsigned int) noexcept


cdef extern from "kernels/cpu/float_environment.h" namespace "roipool" nogil:
    ctypedef unsigned long long FloatEnvironment
    FloatEnvironment enter_standard_floats() noexcept
    void leave_standard_floats(FloatEnvironment) noexcept


cdef extern from "kernels/cpu/interface.h" namespace "roipool" nogil:
    cdef enum Storage:
        float16_storage, bfloat16_storage, float32_storage, float64_storage

    cdef enum FeatureStorage:
        stored_as_pooled, stored_as_uint8, stored_as_int8, stored_as_uint16, stored_as_int16

    cdef struct AxisPlan:
        int bins
        wide_int size

    cdef struct Watch:
        wide_int asks

    cdef struct Job:
        Storage storage
        FeatureStorage feature_storage
        bint channels_last
        wide_int images, channels, boxes
        int group_rows, group_columns
        AxisPlan rows, columns
        const void* features
        const void* grad_output
        void* output
        void* argmax
        bint wide_argmax
        double* grad_boxes
        void* positions[2]
        const wide_int* box_image
        const wide_int* box_row
        double empty_value
        double lowest
        bint argmax_is_cell
        bint nan_restarts
        bint outside_is_zero
        wide_int min_non_temporal_bytes

    cdef cppclass Definition:
        pass

    cdef struct Depth:
        int bins
        wide_int planes
        wide_int sampling
        double scale
        double row_scale

    cdef struct Request:
        Definition definition
        bint double_precision
        double scale
        wide_int sampling[2]
        bint aligned
        double angle_scale
        double offset_factor
        const void* boxes
        const wide_int* images
        Depth depth
        wide_int numbers

    struct DefinitionRow:
        const char* name
        const char* kind
        int samples_per_ratio
        int max_per_cell

    int number_of_definitions() noexcept
    const DefinitionRow* rows_of_definitions() noexcept
    void arrange_described_bins(Request*, Job*)
    wide_int bins_of_box(const Job&)

    cdef enum Operation:
        op_average, op_average_backward, op_average_backward_boxes, op_maximum
        op_maximum_backward, op_unpool, op_argmax_positions, op_argmax_at
        op_average_windows, op_maximum_windows

    cdef enum Status:
        status_done, status_no_memory, status_wide_argmax, status_wrong_argmax, status_long_axis
        status_long_sum, status_interrupted

    cdef struct Engine:
        const char* name
        void (*store_integers)(const float*, wide_int, FeatureStorage, void*) noexcept nogil

    cdef struct Level:
        Request request
        Job job

    cdef struct Call:
        Operation operation
        const Engine* engine
        int threads
        wide_int least_work
        Level* levels
        int level_count
        wide_int bytes

    void begin_call(Call*, Operation, const Engine*, Level*, int, Watch*)

    cdef struct Execution:
        pass

    void take_part_in_call(Execution*, int) noexcept
    Status execute_whole_call(Call*, void (*)(Execution*, int) noexcept nogil) noexcept
    void* handler_for_xla(Status (*)(Call*, int) noexcept nogil) noexcept
    void* handler_for_cuda() noexcept
    void set_cuda_driver(const size_t*) noexcept
    bint make_forks_safe() noexcept
    int usable_engines(const Engine**)


cdef extern from "kernels/cpu/core_cache.h" namespace "roipool" nogil:
    wide_int core_cache_bytes() noexcept
    void _suppose_core_cache "roipool::suppose_core_cache" (wide_int) noexcept


cdef extern from "kernels/cpu/interrupts.h" namespace "roipool":
    void set_main_thread(unsigned long) noexcept
    void start_watch(Watch*) noexcept
    int raise_if_interrupted(const Watch*) except -1


cdef extern from "kernels/cpu/xla_ffi.h" namespace "roipool::xla" nogil:
    const int interface_major, oldest_minor, newest_minor


# Settings, set by `_settings`. Each is one word that a call reads once, so that a change from
# another thread needs no guard.
cdef const Engine* engine = NULL
cdef wide_int min_non_temporal_bytes = 0

# Pooled values per thread: with less work, another thread costs more than it saves.
WORK_OF_THREAD = 16384
cdef wide_int work_of_thread = WORK_OF_THREAD

_STORAGE = {
    "float16": float16_storage,
    "bfloat16": bfloat16_storage,
    "int16": bfloat16_storage,  # the bits of bfloat16, if ml_dtypes is not installed
    "float32": float32_storage,
    "float64": float64_storage,
}
# By types of features; others have the type of pooled values.
_FEATURE_STORAGE = {
    "uint8": stored_as_uint8,
    "int8": stored_as_int8,
    "uint16": stored_as_uint16,
    "int16": stored_as_int16,
}


def definition_traits():
    """Return kind, samples_per_ratio and max_per_cell of each row of kernels/definitions.h."""
    rows = {}
    for i in range(number_of_definitions()):
        row = rows_of_definitions()[i]
        rows[row.name.decode()] = (row.kind.decode(), row.samples_per_ratio, row.max_per_cell)
    return rows


_DEFINITIONS = {name: i for i, name in enumerate(definition_traits())}
# Definitions whose bins share no rows and columns.
BY_BIN = frozenset([name for name, (kind, *_) in definition_traits().items()
                    if kind in ("points", "moved")])


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

# The settings of ``roipool._settings``, in C variables for the sake of small calls.
cdef int chosen_threads = 0
cdef int most_default_threads = MAX_THREADS
cdef object refusal = None


def use_threads(int number):
    """Set how many threads calls may use; 0: as many as OpenMP itself would."""
    global chosen_threads
    chosen_threads = number


def bound_default_threads(int number):
    """Set how many threads calls may use at most where `use_threads` set none."""
    global most_default_threads
    most_default_threads = number


cdef int usable_threads() noexcept nogil:
    if built_with_openmp == 0:
        return 1
    if chosen_threads > 0:
        return limited_threads(chosen_threads)
    return limited_threads(min(_openmp_threads(), most_default_threads))


def limit_threads(int number):
    """Limit the threads of this thread's calls, 0: no limit; return the limit before."""
    return swap_thread_limit(number)


def num_threads():
    """Return how many threads a call may use."""
    return usable_threads()


def use_pool(bint chosen):
    """Choose the threads of calls: those of a pool, or of a parallel region of OpenMP."""
    _uses_pool().store(chosen)


def uses_pool():
    """Return whether calls have the threads of a pool."""
    return bool(_uses_pool().load())


def refuse_calls(reason):
    """Make every call raise a ValueError with this text."""
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


def use_thread_per_work(values):
    """Set the number of pooled values from which a call has another thread."""
    global work_of_thread
    work_of_thread = values


def use_non_temporal_stores(min_bytes):
    """Set the size in bytes from which results are written by non-temporal stores."""
    global min_non_temporal_bytes
    min_non_temporal_bytes = min_bytes


def core_cache():
    """Return the size in bytes of the cache of its own that each core is supposed to have."""
    return core_cache_bytes()


def suppose_core_cache(n_bytes):
    """Set the size of the cache of its own that each core has: for tests and benchmarks."""
    _suppose_core_cache(n_bytes)


# Not in NumPy's own declarations; both functions take over a reference to the type.
cdef extern from "numpy/arrayobject.h":
    ctypedef struct PyArray_Descr:
        pass
    const int NPY_HALF
    object PyArray_FromArray(cnp.ndarray array, PyArray_Descr* dtype, int flags)
    object PyArray_Empty(int ndim, cnp.npy_intp* shape, PyArray_Descr* dtype, int fortran)
    object PyArray_Zeros(int ndim, cnp.npy_intp* shape, PyArray_Descr* dtype, int fortran)

cdef int IN_C_ORDER = (cnp.NPY_ARRAY_C_CONTIGUOUS | cnp.NPY_ARRAY_ALIGNED
                       | cnp.NPY_ARRAY_FORCECAST)
FLOAT64, INT32 = np.dtype(np.float64), np.dtype(np.int32)


cdef PyArray_Descr* given(dtype) except NULL:
    """Return a type with a reference to give away."""
    if not cnp.PyArray_DescrCheck(dtype):
        dtype = np.dtype(dtype)
    Py_INCREF(dtype)
    return <PyArray_Descr*>dtype


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
    """Set how many bytes of freed memory are cached for later calls; 0 caches none."""
    block_cache().set_limit(n_bytes)


def cache_limit():
    """Return the limit that :func:`set_cache_limit` set, in bytes."""
    return block_cache().limit()


def set_lent_limit(size_t n_bytes):
    """Set how many bytes beyond the cache's limit are kept while the system does not need them."""
    block_cache().set_lent_limit(n_bytes)


def cached_bytes():
    """Return how many bytes of freed memory are cached now."""
    return block_cache().bytes()


def lent_bytes():
    """Return how many bytes are kept beyond the cache's limit."""
    return block_cache().lent_bytes()


def free_cached_memory():
    """Return all cached memory to the system."""
    with nogil:
        block_cache().clear()


def empty_array(shape, dtype):
    """Return uninitialised memory; MemoryError if it cannot be allocated."""
    return new_array(shape, dtype, False)


def zeros_array(shape, dtype):
    """Return zeros; the system holds no memory for large ones until they are written."""
    return new_array(shape, dtype, True)


cdef new_array(shape, dtype, bint zeros):
    cdef cnp.npy_intp sizes[5]
    cdef int ndim = 0
    try:
        for size in shape:
            if ndim == 5:
                raise ValueError("more than five dimensions")
            sizes[ndim] = size
            ndim += 1
    except (ValueError, OverflowError) as error:
        raise MemoryError(f"an array of shape {shape} is too large: {error}") from None
    return array_of_sizes(ndim, sizes, dtype, zeros)


cdef array_of_sizes(int ndim, cnp.npy_intp* sizes, dtype, bint zeros=False):
    """Return uninitialised memory, or zeros; MemoryError if it cannot be allocated."""
    cdef double elements = 1
    cdef int i
    before = None
    for i in range(ndim):
        elements *= sizes[i]
    try:
        if zeros:  # not of the cache, whose memory has been written
            return PyArray_Zeros(ndim, sizes, given(dtype), 0)
        if elements * 8 >= min_cached_bytes:  # at most; with less, NumPy's own memory is as good
            before = PyDataMem_SetHandler(array_memory)
        return PyArray_Empty(ndim, sizes, given(dtype), 0)
    except (ValueError, OverflowError) as error:  # NumPy's answer to too large sizes
        shape = tuple([sizes[i] for i in range(ndim)])
        raise MemoryError(f"an array of shape {shape} is too large: {error}") from None
    finally:
        if before is not None:
            PyDataMem_SetHandler(before)


cdef in_c_order(array, dtype, int more_flags):
    """Return an aligned array in C order of a type: the same one, unless flags ask for a copy."""
    if not cnp.PyArray_Check(array):  # None would be let through
        raise TypeError(f"an array is needed, got {type(array).__name__}")
    return PyArray_FromArray(array, given(dtype), IN_C_ORDER | more_flags)


def contiguous(array, dtype):
    """Return an aligned array in C order: the same one if it already is."""
    return in_c_order(array, dtype, 0)


def contiguous_copy(array, dtype):
    """Return a copy of an array in C order, aligned."""
    return in_c_order(array, dtype, cnp.NPY_ARRAY_ENSURECOPY)


def whole_numbers(values, end, cut):
    """Return numbers as int64, and the first row with an invalid one, or -1.

    Whole numbers in [0, end) are valid; with `cut` also numbers that truncate to one. Invalid
    numbers become -1.
    """
    values = in_c_order(values, FLOAT64, 0)
    cdef cnp.npy_intp count = len(values)
    numbers = cnp.PyArray_EMPTY(1, &count, cnp.NPY_INT64, 0)
    cdef const double* value = <const double*>address(values)
    cdef wide_int* number = <wide_int*>address(numbers)
    cdef wide_int limit = end
    cdef wide_int row, wrong = -1
    cdef bint cuts = cut
    cdef double image  # read once: the caller may change it meanwhile
    for row in range(count):
        image = value[row]
        if -1 < image < limit and (cuts or <wide_int>image == image):
            number[row] = <wide_int>image
        else:
            number[row] = -1
            wrong = row if wrong < 0 else wrong
    return numbers, wrong


cdef wide_int copy_table(const char* table, wide_int rows, int columns, int width, wide_int images,
                         bint cuts, char* boxes, wide_int* indices) noexcept:
    """Copy rows of a batch index and a box; return the first row that names no image, or -1.

    With `cuts`, numbers that are not whole are cut.
    """
    cdef wide_int row
    cdef double image  # read once: the caller may change it meanwhile
    for row in range(rows):
        image = (<double*>table)[0] if width == 8 else (<float*>table)[0]
        if not (0 <= image < images) or not (cuts or <wide_int>image == image):
            return row
        indices[row] = <wide_int>image
        memcpy(boxes + row * columns * width, table + width, columns * width)
        table += (columns + 1) * width
    return -1


def boxes_and_images(rows, images):
    """Return the boxes of a table, their images as int64, and the first row of no image, or -1.

    Rows are a batch index and a box, in float32 or float64; the boxes are a copy.
    """
    cdef cnp.npy_intp sizes[2]
    dtype = rows.dtype
    table = in_c_order(rows, dtype, 0)
    sizes[0], sizes[1] = table.shape
    sizes[1] -= 1
    boxes = PyArray_Empty(2, sizes, given(dtype), 0)
    indices = cnp.PyArray_EMPTY(1, sizes, cnp.NPY_INT64, 0)
    wrong = copy_table(<char*>address(table), sizes[0], <int>sizes[1], dtype.itemsize, images,
                       False, <char*>address(boxes), <wide_int*>address(indices))
    return boxes, indices, wrong


# ---- A call without Python: its levels are described, then executed with the GIL released. XLA's
# handler, which has no GIL, calls it, too.

cdef void start_threads(Execution* execution, int threads) noexcept nogil:
    """Let threads take part in a call: this one is the lead."""
    cdef int member
    for member in prange(threads, num_threads=threads, schedule="static", chunksize=1):
        take_part_in_call(execution, member)


cdef Status execute(Call* call) noexcept nogil:
    return execute_whole_call(call, start_threads)


cdef Status run_level(Operation operation, Level* level) except *:
    """Execute a call of one level."""
    return run_described(operation, level, 1)


cdef run_levels(Operation operation, vector[Level]& levels):
    """Execute a call of one level or several, or of none."""
    if levels.size():
        run_described(operation, levels.data(), <int>levels.size())


cdef Status run_described(Operation operation, Level* levels, int count) except *:
    """Execute a call; raise what went wrong, apart from a narrow argmax."""
    cdef Call call
    cdef Watch watch
    cdef Status status
    global latest_asks, latest_threads
    if refusal is not None:
        raise ValueError(refusal)
    start_watch(&watch)
    begin_call(&call, operation, engine, levels, count, &watch)
    choose_threads(&call, usable_threads())
    with nogil:
        status = execute(&call)
    latest_threads = call.threads
    if watch.asks:
        latest_asks = watch.asks
    if status == status_no_memory:
        raise MemoryError(f"a call needs {call.bytes} bytes for its plan or scratch memory")
    if status == status_long_axis:  # from front ends: other calls are checked earlier
        raise ValueError(f"maps must have at most {INT32_MAX} rows and columns")
    if status == status_long_sum:
        raise ValueError("maps must be float64 where a bin has more than 2**22 cells along an "
                         "axis: float32 cannot add up so many")
    if status == status_wrong_argmax:
        raise ValueError("argmax is out of range for these rois, spatial_scale and "
                         "sampling_ratio")
    raise_if_interrupted(&watch)
    return status


cdef wide_int latest_asks = 0


def asks_of_latest_call():
    """Return how often the main thread's latest call asked whether it is to end: for tests."""
    return latest_asks


cdef int latest_threads = 1


def threads_of_latest_call():
    """Return how many threads the latest call had, 1 where it opened no parallel region."""
    return latest_threads


# Less work is done by the calling thread alone: values of masks, and of other calls cells that are
# multiplied; calls of as many values have as many cells. Both are about 100 microseconds of one
# thread. A parallel region costs some 28, and on a core that others use up to a slice of their
# time, which is over 100 times as much.
cdef enum:
    VALUES_OF_REGION = 16  # times `work_of_thread`
    CELLS_OF_REGION = 64


cdef void choose_threads(Call* call, int limit) noexcept nogil:
    """Set the number of threads for a call: one with little work costs more than it saves."""
    cdef wide_int values = 0
    cdef int i
    for i in range(call.level_count):
        values += (call.levels[i].job.boxes * call.levels[i].job.channels
                   * bins_of_box(call.levels[i].job))
    call.threads = threads_for_work(values, limit)
    if values < VALUES_OF_REGION * work_of_thread:
        call.least_work = CELLS_OF_REGION * work_of_thread


cdef int threads_for_work(wide_int work, int limit) noexcept nogil:
    """Return the number of threads for so many values that are computed."""
    return <int>max(1, min(limit, work // work_of_thread))


cdef Status execute_for_xla(Call* call, int running) noexcept nogil:
    """Execute a call of a program that XLA runs, `running` of whose calls share the threads."""
    call.engine = engine
    choose_threads(call, max(1, usable_threads() // running))
    return execute(call)


def xla_handler():
    """Return the handler of calls in XLA's programs."""
    return PyCapsule_New(handler_for_xla(&execute_for_xla), "xla._CUSTOM_CALL_TARGET", NULL)


# The versions of XLA's interface that the handler was compared with: major, and those of minor.
XLA_INTERFACES = interface_major, range(oldest_minor, newest_minor + 1)

# The numbers of `Operation`, by which XLA's programs name a call.
XLA_OPERATIONS = {
    "average": op_average,
    "average_backward": op_average_backward,
    "box_gradient": op_average_backward_boxes,
    "maximum": op_maximum,
    "maximum_backward": op_maximum_backward,
    "unpool": op_unpool,
}


cdef describe_maps(Level* level, dtype, map_shape, batch_indices, output_size, layout):
    """Set the fields that every call has: the maps, the bins, and each box's image."""
    cdef Job* job = &level.job
    memset(level, 0, sizeof(Level))
    job.storage = _STORAGE[dtype_name(dtype)]
    job.channels_last = layout == "NHWC"
    job.boxes = len(batch_indices)
    set_map(job, map_shape[0], map_shape[1], map_shape[2], map_shape[3])
    job.group_rows = job.group_columns = 1
    job.rows.bins, job.columns.bins = output_size
    job.box_image = <wide_int*>address(batch_indices)
    job.min_non_temporal_bytes = min_non_temporal_bytes


cdef list boxes_of_maps(regions, pooling):
    """Return for each map its scale, its boxes, their images, and their rows if not in order."""
    boxes, images, levels = regions
    if levels is None:
        return [(pooling.definition.scale, boxes, images, None)]
    every = [(levels == level).nonzero()[0] for level in range(len(pooling.scales))]
    return [(scale, boxes[rows], images[rows], rows)
            for scale, rows in zip(pooling.scales, every)]


cdef describe(Level* level, dtype, map_shape, pooling, tuple boxes_of_map):
    """Set a map, its boxes, and the definition with its options."""
    cdef Request* request = &level.request
    cdef Job* job = &level.job
    scale, boxes, batch_indices, rows = boxes_of_map
    describe_maps(level, dtype, map_shape, batch_indices, pooling.output_size, pooling.layout)
    (name, _, sampling, request.aligned, request.angle_scale, request.offset_factor,
     groups, depth) = pooling.definition
    job.group_rows, job.group_columns = groups
    if job.group_rows < 1 or job.group_columns < 1:  # each bin a group
        job.group_rows, job.group_columns = pooling.group_size
    job.channels //= job.group_rows * job.group_columns
    request.definition = <Definition><int>_DEFINITIONS[name]
    request.scale = scale
    request.double_precision = level.job.storage == float64_storage
    request.sampling[0], request.sampling[1] = sampling
    if depth is not None:
        set_depth(&request.depth, depth)
    request.boxes = address(boxes)
    request.images = level.job.box_image
    level.job.box_row = <wide_int*>address(rows)
    arrange_described_bins(request, &level.job)


cdef set_depth(Depth* depth, options):
    """Set the third axis of volumes."""
    depth.planes, depth.bins, depth.sampling, depth.scale, depth.row_scale = options


cdef describe_only_map(Level* level, dtype, map_shape, regions, pooling):
    """Like `describe`, for a call on one map. The caller must keep `regions` alive."""
    boxes, images, _ = regions
    describe(level, dtype, map_shape, pooling, (pooling.definition.scale, boxes, images, None))


cdef set_features(Level* level, features, out):
    """Set the features of a forward; int16 in both arrays is the bits of bfloat16."""
    level.job.features = address(features)
    if cnp.PyArray_TYPE(<cnp.ndarray>features) != cnp.PyArray_TYPE(<cnp.ndarray>out):
        level.job.feature_storage = _FEATURE_STORAGE[dtype_name(features.dtype)]


cdef fill(out, value):
    """Write one number everywhere; beyond the type of `out` it is infinite, without a warning."""
    if out.dtype == np.int16:  # bfloat16's bits
        out[...] = np.array(bfloat16_bits(value), np.uint16).view(np.int16)
        return
    with np.errstate(over="ignore"):
        out[...] = value


cdef unsigned int bfloat16_bits(double value) noexcept:
    """Return the bits of a number rounded to bfloat16."""
    cdef float rounded = <float>value
    cdef unsigned int bits
    memcpy(&bits, &rounded, sizeof(bits))
    return bfloat16_of_float_bits(bits)


def average(features, regions, pooling, out):
    """Pool by weighted averages."""
    cdef vector[Level] levels = vector[Level](len(features))
    cdef int i
    cdef bint has_images = cnp.PyArray_DIM(<cnp.ndarray>features[0], 0) > 0
    if not has_images:
        fill(out, pooling.empty_value)
    if not has_images or cnp.PyArray_SIZE(<cnp.ndarray>out) == 0:
        return
    parts = boxes_of_maps(regions, pooling)
    if regions.levels is not None and sum([len(part[1]) for part in parts]) < len(out):
        fill(out, pooling.empty_value)
    for i in range(len(features)):
        describe(&levels[i], out.dtype, features[i].shape, pooling, parts[i])
        set_features(&levels[i], features[i], out)
        levels[i].job.output = address(out)
        levels[i].job.empty_value = pooling.empty_value
    run_levels(op_average, levels)


cdef wide_int values_of_task = 1 << 16  # that are turned into integers: some 13 microseconds


def store_rounded(values, out):
    """Write float32 values in another type, both in C order; see kernels/cpu/integers.cpp."""
    cdef wide_int count, task, begin, number
    cdef const float* value = <const float*>address(values)
    cdef char* integer = <char*>address(out)
    cdef FeatureStorage kind = _FEATURE_STORAGE.get(dtype_name(out.dtype), stored_as_pooled)
    cdef int size = cnp.PyArray_ITEMSIZE(<cnp.ndarray>out)
    cdef FloatEnvironment environment
    cdef int threads
    if kind == stored_as_pooled:
        with np.errstate(over="ignore"):
            out[...] = values
        return
    count = values.size
    threads = <int>max(1, min(usable_threads(), count // (4 * values_of_task)))
    with nogil, parallel(num_threads=threads):
        environment = enter_standard_floats()
        for task in prange((count + values_of_task - 1) // values_of_task):
            begin = task * values_of_task
            number = min(values_of_task, count - begin)
            engine.store_integers(value + begin, number, kind, integer + begin * size)
        leave_standard_floats(environment)


cdef bint keeps_options = True


def keep_options(bint kept):
    """Set whether calls are prepared, and their options kept; see `roipool._kept.observed`."""
    global keeps_options
    keeps_options = kept


cdef double MOST_FRACTION = 10  # larger ends of all crops are a warning of the general path


def is_kept(pooling):
    """Return whether calls with a request can be prepared: on one map of one scale, by rows."""
    definition = pooling.definition
    return (definition.name not in BY_BIN and definition.group_size == (1, 1)
            and type(definition.scale) is not tuple and definition.depth is None
            and not pooling.scales)


cdef class PreparedCall:
    """An average or a maximum of one map with its options prepared, for small calls.

    Boxes are a table whose rows are a batch index and a box, or a box beside batch indices, or a
    list of such tables, one for each image; they are float64 beside float64 maps, else float32.
    Other arrays, and all errors, are left to the general path.
    """
    cdef Level level
    cdef int columns
    cdef bint is_maximum, is_gradient, returns_argmax, takes_lists, are_crops
    cdef readonly object pooling
    cdef readonly bint cuts

    def __init__(self, pooling, int columns, input_shape=None, *, cuts=False, is_maximum=False,
                 returns_argmax=False, takes_lists=False, are_crops=False):
        """Prepare a forward, or for maps of a shape the backward of an average.

        `cuts` says that batch indices within a table are cut to whole numbers, `takes_lists` that
        boxes may be a list of tables, and `are_crops` that they are fractions, y before x.
        """
        definition, rules = pooling.definition, pooling.rules
        self.pooling, self.takes_lists, self.are_crops = pooling, takes_lists, are_crops
        self.cuts, self.is_maximum, self.returns_argmax = cuts, is_maximum, returns_argmax
        self.is_gradient = input_shape is not None
        memset(&self.level, 0, sizeof(Level))
        self.columns = columns
        self.level.request.numbers = columns
        self.level.request.definition = <Definition><int>_DEFINITIONS[definition.name]
        self.level.request.scale = definition.scale
        self.level.request.sampling[0], self.level.request.sampling[1] = definition.sampling
        self.level.request.aligned = definition.aligned
        self.level.request.angle_scale = definition.angle_scale
        self.level.request.offset_factor = definition.offset_factor
        self.level.job.group_rows = self.level.job.group_columns = 1
        self.level.job.rows.bins, self.level.job.columns.bins = pooling.output_size
        self.level.job.empty_value = pooling.empty_value
        self.level.job.channels_last = pooling.layout == "NHWC"
        self.level.job.lowest = rules.lowest
        self.level.job.argmax_is_cell = rules.argmax_is_cell
        self.level.job.nan_restarts = rules.nan_restarts
        self.level.job.outside_is_zero = rules.outside_is_zero
        if input_shape is not None:
            set_map(&self.level.job, input_shape[0], input_shape[1], input_shape[2], input_shape[3])

    @property
    def is_average(self):
        """Whether it pools averages, rather than maxima, or gives a gradient."""
        return not (self.is_maximum or self.is_gradient)

    def __call__(self, str dtype, shape, size_t features, wide_int boxes, size_t table, size_t out,
                 int threads):
        """Pool NCHW maps, given by address, on at most `threads` threads.

        Return whether it was done: not if an address is unaligned or null, or a batch index names
        no image.
        """
        cdef Level level = self.level
        cdef int before
        level.job.storage = _STORAGE[dtype]
        set_map(&level.job, shape[0], shape[1], shape[2], shape[3])
        level.job.boxes = boxes
        level.job.features, level.job.output = <void*>features, <void*>out
        if not (features and table and out) or features % storage_bytes(&level.job):
            return False
        if table % table_bytes(&level.job):
            return False
        before = swap_thread_limit(threads)
        try:
            return self.run(op_average, &level, <char*>table, None, None)
        finally:
            swap_thread_limit(before)

    cpdef result(self, array, rois, indices=None):
        """Return the result of a call, or None if it takes the general path."""
        if not keeps_options:
            return None
        if type(rois) is list:
            rois = tuple(<list>rois)  # which no other thread changes
        if self.is_gradient:
            return self.gradient(array, rois, indices)
        return self.pool(array, rois, indices)

    cdef pool(self, features, rois, indices):
        """Return the pooled values of maps, or None if it takes the general path."""
        cdef Level level = self.level
        cdef Operation operation = op_maximum if self.is_maximum else op_average
        cdef cnp.npy_intp* shape
        cdef cnp.npy_intp sizes[4]
        if not set_storage(&level.job, features):
            return None
        shape = cnp.PyArray_DIMS(<cnp.ndarray>features)
        set_map(&level.job, shape[0], shape[1], shape[2], shape[3])
        if not has_boxes(&level.job, rois, indices, self.columns, self.takes_lists, self.are_crops):
            return None
        if max(level.job.rows.size, level.job.columns.size) > INT32_MAX:
            return None
        set_sizes(sizes, &level.job, level.job.boxes, level.job.rows.bins, level.job.columns.bins)
        pooled = array_of_sizes(4, sizes, <object>cnp.PyArray_DESCR(<cnp.ndarray>features))
        level.job.features, level.job.output = address(features), address(pooled)
        if not self.returns_argmax:
            return pooled if self.run(operation, &level, NULL, rois, indices) else None
        if level.job.rows.size * level.job.columns.size > INT32_MAX:
            return None
        argmax = array_of_sizes(4, sizes, INT32)
        level.job.argmax = address(argmax)
        return (pooled, argmax) if self.run(operation, &level, NULL, rois, indices) else None

    cdef gradient(self, grad_output, rois, indices):
        """Return the gradient of the maps, or None if it takes the general path."""
        cdef Level level = self.level
        cdef Job* job = &level.job
        cdef cnp.npy_intp* shape
        cdef cnp.npy_intp sizes[4]
        cdef int row = 1 if job.channels_last else 2
        if not set_storage(job, grad_output):
            return None
        if not has_boxes(job, rois, indices, self.columns, self.takes_lists, self.are_crops):
            return None
        shape = cnp.PyArray_DIMS(<cnp.ndarray>grad_output)
        if shape[0] != job.boxes or shape[3 if job.channels_last else 1] != job.channels:
            return None
        if max(shape[row], shape[row + 1]) > INT32_MAX:
            return None
        if job.images == 0 or job.rows.size == 0 or job.columns.size == 0:
            return None
        job.rows.bins, job.columns.bins = <int>shape[row], <int>shape[row + 1]
        set_sizes(sizes, job, job.images, job.rows.size, job.columns.size)
        result = array_of_sizes(4, sizes, <object>cnp.PyArray_DESCR(<cnp.ndarray>grad_output))
        job.grad_output, job.output = address(grad_output), address(result)
        return result if self.run(op_average_backward, &level, NULL, rois, indices) else None

    cdef bint copy_boxes(self, Job* job, const char* table, rois, indices, char* boxes,
                         wide_int* images) noexcept:
        """Copy boxes and their images, in one table by address or as they are; return if valid."""
        cdef int width = table_bytes(job)
        cdef wide_int row, count, image = 0, at = 0
        if table == NULL and indices is None and type(rois) is not tuple:
            table = <char*>address(rois)
        if table != NULL:
            return copy_table(table, job.boxes, self.columns, width, job.images, self.cuts, boxes,
                              images) < 0
        for each in (rois if indices is None else (rois,)):
            count = cnp.PyArray_DIM(<cnp.ndarray>each, 0)
            memcpy(boxes + at * self.columns * width, address(each), count * self.columns * width)
            for row in range(count):
                images[at + row] = image if indices is None else number_at(indices, row)
                if not 0 <= images[at + row] < job.images:
                    return False
            at, image = at + count, image + 1
        return not self.are_crops or are_usual_crops(<float*>boxes, job.boxes)

    cdef bint run(self, Operation operation, Level* level, const char* table, rois,
                  indices) except *:
        """Run a call whose maps are described; return False if a batch index names no image."""
        cdef Job* job = &level.job
        cdef int width = table_bytes(job)
        cdef char* memory = <char*>allocate(job.boxes * (self.columns * width + sizeof(wide_int)))
        if memory == NULL:
            return False
        job.min_non_temporal_bytes = min_non_temporal_bytes
        job.box_image = <wide_int*>memory
        level.request.double_precision = job.storage == float64_storage
        level.request.images = job.box_image
        level.request.boxes = memory + job.boxes * sizeof(wide_int)
        try:
            if not self.copy_boxes(job, table, rois, indices, <char*>level.request.boxes,
                                   <wide_int*>memory):
                return False
            return run_level(operation, level) != status_wide_argmax
        finally:
            deallocate(memory)


def are_read(maps, rois, indices, int columns, dict options):
    """Return whether a `PreparedCall` with such options reads maps and boxes as they are."""
    cdef Job job
    if not set_storage(&job, maps):
        return False
    if type(rois) is list:
        rois = tuple(<list>rois)
    job.images = cnp.PyArray_DIM(<cnp.ndarray>maps, 0)
    return has_boxes(&job, rois, indices, columns, "takes_lists" in options, "are_crops" in options)


cdef bint set_storage(Job* job, maps) noexcept:
    """Return whether maps can be read as they are; set their type."""
    if not (cnp.PyArray_CheckExact(maps) and is_native(<cnp.ndarray>maps, 4)):
        return False
    kind = cnp.PyArray_TYPE(<cnp.ndarray>maps)
    if kind == cnp.NPY_FLOAT:
        job.storage = float32_storage
    elif kind == cnp.NPY_DOUBLE:
        job.storage = float64_storage
    elif kind == NPY_HALF:
        job.storage = float16_storage
    else:
        return False
    return True


cdef bint has_boxes(Job* job, rois, indices, int columns, bint takes_lists,
                    bint are_crops) noexcept:
    """Return whether boxes can be read as they are, beside described maps; set their number."""
    job.boxes = 0
    if are_crops and (indices is None or job.storage != float32_storage):
        return False  # some functions take crops of other types in float32
    if type(rois) is tuple:
        if indices is not None or not takes_lists or len(<tuple>rois) != job.images:
            return False
        for each in <tuple>rois:
            if not is_table(each, job, columns):
                return False
            job.boxes += cnp.PyArray_DIM(<cnp.ndarray>each, 0)
        return True
    if not is_table(rois, job, columns + (indices is None)):
        return False
    job.boxes = cnp.PyArray_DIM(<cnp.ndarray>rois, 0)
    return indices is None or (
        cnp.PyArray_CheckExact(indices)
        and cnp.PyArray_TYPE(<cnp.ndarray>indices) in (cnp.NPY_INT32, cnp.NPY_INT64)
        and is_native(<cnp.ndarray>indices, 1)
        and cnp.PyArray_DIM(<cnp.ndarray>indices, 0) == job.boxes)


cdef bint is_table(array, const Job* job, int columns) noexcept:
    """Return whether an array is a table of boxes beside described maps."""
    cdef int expected = cnp.NPY_DOUBLE if job.storage == float64_storage else cnp.NPY_FLOAT
    return (cnp.PyArray_CheckExact(array) and is_native(<cnp.ndarray>array, 2)
            and cnp.PyArray_TYPE(<cnp.ndarray>array) == expected
            and cnp.PyArray_DIM(<cnp.ndarray>array, 1) == columns)


cdef wide_int number_at(indices, wide_int row) noexcept:
    if cnp.PyArray_TYPE(<cnp.ndarray>indices) == cnp.NPY_INT64:
        return (<wide_int*>address(indices))[row]
    return (<int*>address(indices))[row]


cdef bint are_usual_crops(float* boxes, wide_int count) noexcept:
    """Exchange y and x of corners; return whether all are finite and fractions of a map."""
    cdef wide_int at
    for at in range(0, 4 * count, 2):
        boxes[at], boxes[at + 1] = boxes[at + 1], boxes[at]
        if not (abs(boxes[at]) <= MOST_FRACTION and abs(boxes[at + 1]) <= MOST_FRACTION):
            return False
    return True


cdef int storage_bytes(const Job* job) noexcept:
    return 8 if job.storage == float64_storage else 4 if job.storage == float32_storage else 2


cdef int table_bytes(const Job* job) noexcept:
    return 8 if job.storage == float64_storage else 4


cdef void set_map(Job* job, wide_int images, wide_int first, wide_int second,
                  wide_int third) noexcept:
    """Set the sizes of a map from its shape."""
    job.images = images
    job.channels = third if job.channels_last else first
    job.rows.size = first if job.channels_last else second
    job.columns.size = second if job.channels_last else third


cdef void set_sizes(cnp.npy_intp* sizes, const Job* job, wide_int items, wide_int rows,
                    wide_int columns) noexcept:
    """Set the shape of an array with the channels of a map, in its layout."""
    sizes[0] = items
    sizes[1] = rows if job.channels_last else job.channels
    sizes[2] = columns if job.channels_last else rows
    sizes[3] = job.channels if job.channels_last else columns


cdef bint is_native(cnp.ndarray array, int dimensions) noexcept:
    """Return whether an array has values, in C order, aligned and in native byte order."""
    return (cnp.PyArray_NDIM(array) == dimensions and cnp.PyArray_ISCARRAY_RO(array)
            and cnp.PyArray_SIZE(array) > 0)


cdef class OnDevice:
    """What works on a device, or on the host: a base for calls, whose entry small ones notice."""
    cdef public object _device  # a context, or None on the host

    def __enter__(self):
        if self._device is not None:
            self._device.__enter__()
        return self

    def __exit__(self, *error):
        if self._device is not None:
            self._device.__exit__(*error)


cdef class KeptCalls:
    """Calls of a function prepared for the options of earlier ones, which are not checked again.

    Its first two arguments are the maps, or the gradient of pooled values, and the boxes. Options
    are compared with their types, so that 1 does not stand for True or 1.0.
    """
    cdef dict kept

    def __init__(self):
        self.kept = {}

    def keep(self, tuple args, dict options, prepared, indices=None):
        """Let calls with the options of this one be computed by a `PreparedCall`; None is none.

        `indices` is the array among the options, if one is allowed there.
        """
        cdef PyObject* array = NULL
        cdef PyObject* allowed = NULL
        if indices is not None:
            allowed = <PyObject*>indices
        plain = plain_options(args, options, &array)
        if prepared is None or plain is None or array != allowed:
            return
        if len(self.kept) >= MOST_KEPT:
            self.kept.clear()
        self.kept[plain] = plain, prepared

    def prepared(self, tuple args, dict options):
        """Return what computes calls with such options, without an array among them, or None."""
        cdef PyObject* array = NULL
        prepared = self.found(args, options, &array)
        return prepared if array == NULL else None

    @cython.binding(False)
    def result(self, tuple args, dict options):
        """Return the result of a call, or None if it takes the general path."""
        cdef PyObject* array = NULL
        prepared = self.found(args, options, &array)
        if prepared is None:
            return None
        indices = None if array == NULL else <object>array
        return (<PreparedCall>prepared).result(args[0], args[1], indices)

    cdef found(self, tuple args, dict options, PyObject** array):
        """Return what computes calls with such options, or None, and the array among them."""
        cdef Py_ssize_t at
        plain = plain_options(args, options, array) if keeps_options else None
        found = None if plain is None else self.kept.get(plain)
        if found is None:
            return None
        known, prepared = <tuple>found
        for at in range(len(<tuple>known)):
            if type((<tuple>known)[at]) is not type((<tuple>plain)[at]):
                return None
        return prepared


cdef int MOST_KEPT = 256
cdef object INDICES = object()  # stands for batch indices among the options of kept calls


cdef tuple plain_options(tuple args, dict options, PyObject** array):
    """Return the number of arguments, the options among them, and those with names.

    None if one is neither None, a number or text of Python nor a plain tuple. `INDICES` stands for
    the one array that there may be, which `array` then has.
    """
    cdef Py_ssize_t at, place = 0
    cdef PyObject* name = NULL
    cdef PyObject* option = NULL
    cdef list plain = [len(args)]
    for at in range(2, len(args)):
        if not add_option(plain, args[at], array):
            return None
    while PyDict_Next(options, &place, &name, &option):
        plain.append(<object>name)
        if not add_option(plain, <object>option, array):
            return None
    return tuple(plain)


cdef bint add_option(list plain, option, PyObject** array):
    """Add an option to plain ones; return whether it is one."""
    kind = type(option)
    if kind is tuple:
        if not is_plain_tuple(<tuple>option):
            return False
    elif cnp.PyArray_CheckExact(option) and array[0] == NULL:
        array[0] = <PyObject*>option
        option = INDICES
    elif not (option is None or kind is int or kind is float or kind is bool or kind is str):
        return False
    plain.append(option)
    return True


cdef bint is_plain_tuple(tuple numbers):
    """Return whether a tuple has only int, fractions, or such tuples.

    Its items' types are not compared: a float that is whole would stand for an int.
    """
    for number in numbers:
        if type(number) is tuple:
            if not is_plain_tuple(<tuple>number):
                return False
        elif type(number) is float:
            if number == floor(number):
                return False
        elif type(number) is not int:
            return False
    return True


def average_backward(grad_output, regions, pooling, outs):
    """Write the gradient of an average with respect to each of the maps."""
    cdef vector[Level] levels
    cdef Level level
    parts = boxes_of_maps(regions, pooling)
    for out, part in zip(outs, parts):
        if out.size:
            describe(&level, out.dtype, out.shape, pooling, part)
            level.job.grad_output = address(grad_output)
            level.job.output = address(out)
            levels.push_back(level)
    run_levels(op_average_backward, levels)


def average_backward_boxes(grad_output, features, regions, pooling):
    """Return the gradient of an average with respect to each number of each box."""
    cdef vector[Level] levels
    cdef Level level
    sums = np.zeros(regions.boxes.shape, np.float64)
    parts = boxes_of_maps(regions, pooling)
    for maps, part in zip(features, parts):
        if maps.size and grad_output.size:
            describe(&level, maps.dtype, maps.shape, pooling, part)
            level.job.grad_output = address(grad_output)
            level.job.features = address(maps)
            level.job.grad_boxes = <double*>address(sums)
            levels.push_back(level)
    run_levels(op_average_backward_boxes, levels)
    cdef FloatEnvironment environment = enter_standard_floats()
    try:
        return sums.astype(regions.boxes.dtype)
    finally:
        leave_standard_floats(environment)


def maximum(features, regions, pooling, out, *, return_argmax):
    """Pool by maxima; return the argmax if it is asked for."""
    cdef Level level
    rules = pooling.rules
    if out.size == 0 or len(features) == 0:
        fill(out, pooling.empty_value)
        if not return_argmax:
            return None
        argmax = empty_array(out.shape, np.int32)
        argmax[...] = -1
        return argmax
    describe_only_map(&level, out.dtype, features.shape, regions, pooling)
    set_features(&level, features, out)
    level.job.output = address(out)
    level.job.empty_value = pooling.empty_value
    level.job.lowest = rules.lowest
    level.job.argmax_is_cell = rules.argmax_is_cell
    level.job.nan_restarts = rules.nan_restarts
    level.job.outside_is_zero = rules.outside_is_zero
    if not return_argmax:
        run_level(op_maximum, &level)
        return None
    cells = level.job.rows.size * level.job.columns.size
    wide = rules.argmax_is_cell and cells > INT32_MAX
    argmax = argmax_of(&level, out.shape, wide)
    if run_level(op_maximum, &level) == status_wide_argmax:
        argmax = argmax_of(&level, out.shape, True)
        run_level(op_maximum, &level)
    return argmax


cdef argmax_of(Level* level, shape, wide):
    """Allocate the argmax of a maximum."""
    argmax = empty_array(shape, np.int64 if wide else np.int32)
    level.job.argmax, level.job.wide_argmax = address(argmax), wide
    return argmax


cdef scatter_argmax(Operation operation, Level* level, grad_output, argmax, out):
    """Add each gradient to the cells of its argmax."""
    level.job.grad_output = address(grad_output)
    level.job.output = address(out)
    level.job.argmax = address(argmax)
    level.job.wide_argmax = argmax.dtype == np.int64
    run_level(operation, level)


def maximum_backward(grad_output, argmax, regions, pooling, out):
    """Write the gradient of a maximum with respect to the features."""
    cdef Level level
    if out.size:
        describe_only_map(&level, grad_output.dtype, out.shape, regions, pooling)
        level.job.argmax_is_cell = pooling.rules.argmax_is_cell
        scatter_argmax(op_maximum_backward, &level, grad_output, argmax, out)


def unpool(grad_output, argmax, batch_indices, layout, out):
    """Write the sums of all gradients at the cell of the map that their argmax names."""
    cdef Level level
    bins = grad_output.shape[1:3] if layout == "NHWC" else grad_output.shape[2:]
    if out.size:
        describe_maps(&level, grad_output.dtype, out.shape, batch_indices, bins, layout)
        level.job.argmax_is_cell = True
        scatter_argmax(op_unpool, &level, grad_output, argmax, out)


def argmax_positions(argmax, regions, pooling, input_shape):
    """Return the positions y and x, in map cells, of samples given by index; NCHW."""
    cdef Level level
    argmax = np.ascontiguousarray(argmax, np.int64)
    y = empty_array(argmax.shape, regions.boxes.dtype)
    x = empty_array(argmax.shape, regions.boxes.dtype)
    if argmax.size:
        describe_only_map(&level, regions.boxes.dtype, input_shape, regions, pooling)
        convert_argmax(op_argmax_positions, &level, argmax, y, x)
    return y, x


def argmax_at(y, x, regions, pooling, input_shape):
    """Return the indices of the samples at positions, -1 where there is none; NCHW."""
    cdef Level level
    argmax = empty_array(y.shape, np.int64)
    if argmax.size:
        describe_only_map(&level, regions.boxes.dtype, input_shape, regions, pooling)
        convert_argmax(op_argmax_at, &level, argmax, y, x)
    return argmax


def windows(regions, pooling, map_shape, *, bint of_maximum):
    """Return the cells that each box reads, int64 (K, 4): rows and columns from, and up to.

    The definition must plan rows and columns apart.
    """
    cdef Level level
    found = empty_array((len(regions.boxes), 4), np.int64)
    if len(found):
        describe_only_map(&level, regions.boxes.dtype, map_shape, regions, pooling)
        level.job.positions[0] = address(found)
        run_level(op_maximum_windows if of_maximum else op_average_windows, &level)
    return found


cdef convert_argmax(Operation operation, Level* level, argmax, y, x):
    level.job.argmax = address(argmax)
    level.job.positions[0], level.job.positions[1] = address(y), address(x)
    run_level(operation, level)


include "_launches.pxi"
include "_tensors.pxi"


# ---- Masks, pasted into pictures. A request is a `roipool._masks.request.Pasting`.

cdef extern from "kernels/cpu/mask_call.h" namespace "roipool" nogil:
    cdef enum PasteRule:
        paste_faded, paste_cut, paste_resized

    cdef enum MaskStorage:
        mask_float16, mask_bfloat16, mask_float32, mask_float64, mask_uint8, mask_bool

    cdef enum MaskOperation:
        masks_paste, masks_backward, masks_backward_boxes, masks_encode

    cdef struct PixelRange:
        wide_int begin, end

    cdef cppclass RunLengths:
        string text
        wide_int area

    cdef struct MaskJob:
        MaskStorage cell_storage, output_storage
        bint double_precision
        PasteRule rule
        wide_int frame
        wide_int masks, mask_rows, mask_columns
        const void* cells
        const void* boxes
        wide_int rows, columns, first_row, first_column
        double threshold, factor
        void* output
        const void* grad_output
        double* grad_boxes
        RunLengths* run_lengths
        bint on_zeros

    cdef struct MaskCall:
        int threads
        wide_int bytes

    void begin_mask_call(MaskCall*, MaskOperation, const MaskJob&, Watch*)
    void window_of_mask(const MaskJob&, wide_int, PixelRange*)
    Status execute_mask_call(MaskCall*, void (*)(Execution*, int) noexcept nogil) noexcept


_PASTE_RULES = {"faded": paste_faded, "cut": paste_cut, "resized": paste_resized}
_MASK_STORAGE = {
    "float16": mask_float16,
    "bfloat16": mask_bfloat16,
    "int16": mask_bfloat16,  # its bits, as of maps
    "float32": mask_float32,
    "float64": mask_float64,
    "uint8": mask_uint8,
    "bool": mask_bool,
}


cdef describe_masks(MaskJob* job, shape, boxes, pasting):
    """Set the masks' shape, the boxes, and the part of a picture. The caller keeps `boxes`."""
    memset(job, 0, sizeof(MaskJob))
    job.masks, *_, job.mask_rows, job.mask_columns = shape
    job.boxes = address(boxes)
    job.double_precision = boxes.dtype == FLOAT64
    job.rule = <PasteRule><int>_PASTE_RULES[pasting.rule]
    job.frame = pasting.frame
    job.rows, job.columns = pasting.size
    job.first_row, job.first_column = pasting.origin
    job.threshold, job.factor = pasting.threshold or 0.0, pasting.factor


cdef set_cells(MaskJob* job, masks):
    job.cell_storage = <MaskStorage><int>_MASK_STORAGE[dtype_name(masks.dtype)]
    job.cells = address(masks)


cdef set_pasted(MaskJob* job, pasted):
    job.output_storage = <MaskStorage><int>_MASK_STORAGE[dtype_name(pasted.dtype)]


cdef run_masks(MaskOperation operation, MaskJob* job):
    """Execute a call; raise what went wrong."""
    cdef MaskCall call
    cdef Watch watch
    cdef Status status
    cdef wide_int values
    global latest_asks, latest_threads
    if refusal is not None:
        raise ValueError(refusal)
    start_watch(&watch)
    begin_mask_call(&call, operation, job[0], &watch)
    values = job.masks * job.rows * job.columns
    if values >= VALUES_OF_REGION * work_of_thread:
        call.threads = threads_for_work(values, usable_threads())
    with nogil:
        status = execute_mask_call(&call, start_threads)
    latest_threads = call.threads
    if watch.asks:
        latest_asks = watch.asks
    if status == status_no_memory:
        raise MemoryError(f"a call needs {call.bytes} bytes of scratch memory for each thread")
    raise_if_interrupted(&watch)


def paste(masks, boxes, pasting, out):
    """Paste masks into a picture each."""
    cdef MaskJob job
    if out.size:
        describe_masks(&job, masks.shape, boxes, pasting)
        set_cells(&job, masks)
        set_pasted(&job, out)
        job.output, job.on_zeros = address(out), pasting.on_zeros
        run_masks(masks_paste, &job)


def paste_backward(grad_output, boxes, pasting, out):
    """Write the gradient of pasted masks with respect to the masks."""
    cdef MaskJob job
    if out.size:
        describe_masks(&job, out.shape, boxes, pasting)
        set_pasted(&job, grad_output)
        job.cell_storage = job.output_storage
        job.grad_output, job.output = address(grad_output), address(out)
        run_masks(masks_backward, &job)


def paste_backward_boxes(grad_output, masks, boxes, pasting, out):
    """Write the gradient of pasted masks with respect to the numbers of their boxes."""
    cdef MaskJob job
    sums = np.zeros(out.shape, np.float64)
    if out.size and masks.size:
        describe_masks(&job, masks.shape, boxes, pasting)
        set_cells(&job, masks)
        set_pasted(&job, grad_output)
        job.grad_output, job.grad_boxes = address(grad_output), <double*>address(sums)
        run_masks(masks_backward_boxes, &job)
    with np.errstate(over="ignore"):
        out[...] = sums


def run_lengths(masks, boxes, pasting):
    """Return COCO's compressed run lengths of each mask, and its pixels."""
    cdef MaskJob job
    cdef vector[RunLengths] found = vector[RunLengths](len(masks))
    cdef size_t i
    describe_masks(&job, masks.shape, boxes, pasting)
    set_cells(&job, masks)
    job.run_lengths = found.data()
    if job.masks:
        run_masks(masks_encode, &job)
    areas = np.array([found[i].area for i in range(found.size())], np.int64)
    counts = []
    for i in range(found.size()):  # not all twice in memory
        counts.append(<bytes>found[i].text)
        found[i].text = string()
    return counts, areas


def paste_windows(shape, boxes, pasting):
    """Return the pixels of masks of a shape: first row and column, end of rows and columns."""
    cdef MaskJob job
    cdef PixelRange window[2]
    cdef wide_int i
    describe_masks(&job, shape, boxes, pasting)
    windows = np.zeros((job.masks, 4), np.int64)
    cdef wide_int* to = <wide_int*>address(windows)
    for i in range(job.masks):
        window_of_mask(job, i, window)
        to[4 * i], to[4 * i + 1] = window[0].begin, window[1].begin
        to[4 * i + 2], to[4 * i + 3] = window[0].end, window[1].end
    return windows


if not instruction_sets():
    raise ImportError("roipool was built with ROIPOOL_BUILD_ISA for an instruction set that this "
                      "processor lacks: install it again without that variable")
use_instruction_set(instruction_sets()[0])
set_main_thread(threading.main_thread().ident)
if not make_forks_safe():
    raise MemoryError("there is no memory for the handlers of forks")
