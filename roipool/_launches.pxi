# Launches of CUDA kernels by the driver's own function, without Python in between: a part of
# _cpu.pyx, since it needs a C compiler but nothing of CUDA. `roipool._cuda.kept` makes them.

ctypedef unsigned int number

# cuLaunchKernel: a kernel, blocks and threads in three directions, shared memory, a stream, the
# addresses of arguments, and NULL; returns 0 if it is queued.
ctypedef int (*Launcher)(void*, number, number, number, number, number, number, number, void*,
                         void**, void**) noexcept

cdef enum:
    WORDS_OF_ARGUMENTS = 512
    ADDRESSES_OF_AVERAGE = 6
    FUNCTIONS_OF_DRIVER = 8


cdef class KernelLaunch:
    """A launch of the forward of an average, but for its arrays and their sizes.

    Parameters
    ----------
    launcher, function : int
        The addresses of cuLaunchKernel, and of the driver's object for a kernel.
    grid : tuple of int
        Blocks, threads across and down, bytes of shared memory.
    structure : bytes
        The last argument, in which a launch sets the numbers at some offsets.
    offsets : tuple of int
        Those of the boxes, the tasks, the images, and the rows and columns of the map.
    tasks_of_box : int
        Tasks of each box.
    table_item, map_item : int
        Bytes of a number of the table of boxes, and of what is read of the maps at once.
    """
    cdef Launcher launcher
    cdef void* function
    cdef number blocks, across, down, shared
    cdef bytes structure
    cdef Py_ssize_t boxes_at, tasks_at, images_at, rows_at, columns_at
    cdef wide_int tasks_of_box
    cdef size_t table_item, map_item

    def __init__(self, size_t launcher, size_t function, tuple grid, bytes structure,
                 tuple offsets, wide_int tasks_of_box, size_t table_item, size_t map_item):
        self.launcher, self.function = <Launcher>launcher, <void*>function
        self.blocks, self.across, self.down, self.shared = grid
        if len(structure) > 8 * WORDS_OF_ARGUMENTS:
            raise ValueError("a kernel takes 4096 bytes of arguments at most")
        self.structure, self.tasks_of_box = structure, tasks_of_box
        self.boxes_at, self.tasks_at, self.images_at, self.rows_at, self.columns_at = offsets
        self.table_item, self.map_item = table_item, map_item

    cdef bint launch(self, size_t stream, wide_int boxes, wide_int images, wide_int rows,
                     wide_int columns, size_t features, size_t table, size_t out) noexcept:
        """Launch the kernel; return whether it is queued."""
        cdef unsigned long long memory[WORDS_OF_ARGUMENTS]
        cdef char* structure = <char*>memory
        cdef size_t addresses[ADDRESSES_OF_AVERAGE]
        cdef void* arguments[ADDRESSES_OF_AVERAGE + 1]
        cdef int i
        if not (features and table and out) or table % self.table_item:
            return False
        if features % self.map_item or out % self.map_item:
            return False
        memcpy(structure, <const char*>self.structure, len(self.structure))
        (<wide_int*>(structure + self.boxes_at))[0] = boxes
        (<wide_int*>(structure + self.tasks_at))[0] = boxes * self.tasks_of_box
        (<wide_int*>(structure + self.images_at))[0] = images
        (<wide_int*>(structure + self.rows_at))[0] = rows
        (<wide_int*>(structure + self.columns_at))[0] = columns
        # The boxes, their images in the column before, no levels, the maps, the result, no scratch.
        addresses[0], addresses[1], addresses[2] = table + self.table_item, table, 0
        addresses[3], addresses[4], addresses[5] = features, out, 0
        for i in range(ADDRESSES_OF_AVERAGE):
            arguments[i] = &addresses[i]
        arguments[ADDRESSES_OF_AVERAGE] = structure
        return self.launcher(self.function, self.blocks, 1, 1, self.across, self.down, 1,
                             self.shared, <void*>stream, arguments, NULL) == 0


cdef class AverageLaunches:
    """Launches of averages of one map with the same options, by what their grids depend on.

    Parameters
    ----------
    make : callable
        Returns a `KernelLaunch` for a kind of arrays, a GPU's number, channels, rows, columns and
        boxes, the last three rounded up; or None if such calls take the general path.
    channels_last : bool
        Whether maps are NHWC.
    """
    cdef object make
    cdef bint channels_last
    cdef dict kept

    def __init__(self, make, bint channels_last):
        self.make, self.channels_last, self.kept = make, channels_last, {}

    def __call__(self, kind, shape, wide_int boxes, int gpu, size_t stream, size_t features,
                 size_t table, size_t out):
        """Pool boxes from maps of a shape; return whether it was done."""
        cdef int row = 1 if self.channels_last else 2
        cdef wide_int images = shape[0]
        cdef wide_int rows = shape[row]
        cdef wide_int columns = shape[row + 1]
        key = (kind, gpu, shape[3 if self.channels_last else 1], rounded_up(rows),
               rounded_up(columns), rounded_up(boxes))
        launch = self.kept.get(key, self)
        if launch is self:
            if len(self.kept) >= MOST_KEPT:
                self.kept.clear()
            launch = self.kept[key] = self.make(*key)
        return launch is not None and (<KernelLaunch>launch).launch(
            stream, boxes, images, rows, columns, features, table, out)


def xla_cuda_handler(addresses):
    """Return the handler of calls in XLA's programs for a GPU.

    Parameters
    ----------
    addresses : tuple of int
        Those of the driver's functions that `roipool._cuda.driver` names, for all handlers.
    """
    cdef size_t[FUNCTIONS_OF_DRIVER] functions
    cdef int i
    for i in range(FUNCTIONS_OF_DRIVER):
        functions[i] = addresses[i]
    set_cuda_driver(functions)
    return PyCapsule_New(handler_for_cuda(), "xla._CUSTOM_CALL_TARGET", NULL)


def rounded_up(wide_int count):
    """Return a number that few numbers round to: at most an eighth more, one of eight per octave.

    Launches are prepared for numbers of boxes, and sizes of maps, that are rounded so.
    """
    cdef int bits = 0
    while count >> bits >= 16:
        bits += 1
    return (count + (1 << bits) - 1) >> bits << bits
