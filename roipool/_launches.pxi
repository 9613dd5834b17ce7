# Launches of CUDA kernels by the driver's own functions, without Python in between: a part of
# _cpu.pyx, since it needs a C compiler but nothing of CUDA. `roipool._cuda.kept` makes them.

ctypedef unsigned int number

# cuLaunchKernel: a kernel, blocks and threads in three directions, shared memory, a stream, the
# addresses of arguments, and NULL; returns 0 if it is queued. cuMemsetD8Async: an address, a value,
# bytes, a stream.
ctypedef int (*Launcher)(void*, number, number, number, number, number, number, number, void*,
                         void**, void**) noexcept
ctypedef int (*Clearer)(size_t, unsigned char, size_t, void*) noexcept

cdef enum:
    WORDS_OF_ARGUMENTS = 512
    FUNCTIONS_OF_DRIVER = 8
    MOST_ADDRESSES = 10
    # What `LEVEL_TYPE` in _cuda/arguments.py has of each level, in words.
    LEVEL_ADDRESS = 0
    LEVEL_ROWS = 1
    LEVEL_COLUMNS = 2
    LEVEL_FIRST_TILE = 3
    LEVEL_WORDS = 5

cdef struct Kernel:
    void* function
    number blocks, across, down, shared

# Where numbers of a call lie in its structure, in bytes, and how its work is counted.
cdef struct Places:
    Py_ssize_t images, boxes, tasks, tiles, portions, tally_bytes, levels

cdef struct Work:
    wide_int tasks_of_box, tile_rows, tile_columns, maps_of_image, groups, most_portions


cdef inline void set_number(char* structure, Py_ssize_t at, wide_int value) noexcept:
    (<wide_int*>(structure + at))[0] = value


cdef class CallLaunch:
    """The launches of a call's one or two kernels, but for its arrays and their sizes.

    Parameters
    ----------
    functions : tuple of int
        The addresses of cuLaunchKernel and of cuMemsetD8Async.
    engine, plan : tuple of int
        The driver's object for a kernel, blocks, threads across and down, bytes of shared memory;
        an empty `plan` is none.
    structure : bytes
        The last argument of both, in which a launch sets the numbers at some places.
    places : tuple of int
        Those of the images, boxes, tasks, tiles, portions, bytes of the tally, and the first level.
    work : tuple of int
        Tasks of each box; or, of gradients, rows and columns of a tile, maps of an image, groups of
        channels, and the most portions of crowded tiles.
    takes : tuple of bool
        Whether the engine is given the boxes, their batch indices and levels, and scratch memory.
    item : int
        Bytes to which all arrays must be aligned.
    scratch : int
        Bytes of scratch memory.
    """
    cdef Launcher launcher
    cdef Clearer clearer
    cdef Kernel engine, plan
    cdef Places places
    cdef Work work
    cdef bytes structure
    cdef bint is_planned, takes_boxes, takes_regions, takes_scratch
    cdef size_t item
    cdef readonly Py_ssize_t scratch

    def __init__(self, tuple functions, tuple engine, tuple plan, bytes structure, tuple places,
                 tuple work, tuple takes, size_t item, Py_ssize_t scratch):
        cdef size_t launcher, clearer
        launcher, clearer = functions
        self.launcher, self.clearer = <Launcher>launcher, <Clearer>clearer
        self.engine, self.is_planned = kernel_of(engine), len(plan) > 0
        if self.is_planned:
            self.plan = kernel_of(plan)
        if len(structure) > 8 * WORDS_OF_ARGUMENTS:
            raise ValueError("a kernel takes 4096 bytes of arguments at most")
        self.structure = structure
        self.takes_boxes, self.takes_regions, self.takes_scratch = takes
        cdef Places* at = &self.places
        at.images, at.boxes, at.tasks, at.tiles, at.portions, at.tally_bytes, at.levels = places
        cdef Work* by = &self.work
        (by.tasks_of_box, by.tile_rows, by.tile_columns, by.maps_of_image, by.groups,
         by.most_portions) = work
        self.item, self.scratch = item, scratch

    def __call__(self, size_t stream, wide_int boxes, tuple sizes, tuple regions, tuple arrays,
                 tuple maps, size_t scratch):
        """Launch the kernels; return whether they are queued.

        `sizes` are the number of images, and rows and columns of each map; `regions` the addresses
        of boxes, batch indices and levels, `arrays` those of the engine's other arrays, and `maps`
        those of several maps.
        """
        cdef unsigned long long memory[WORDS_OF_ARGUMENTS]
        cdef size_t of_plan[MOST_ADDRESSES]
        cdef size_t of_engine[MOST_ADDRESSES]
        cdef size_t address
        cdef int given = 0
        for address in arrays + maps:
            if address % self.item:
                return False
        cdef wide_int tally = self.fill(<char*>memory, boxes, sizes, maps)
        if tally and self.clearer(scratch, 0, tally, <void*>stream):
            return False
        if self.is_planned:
            of_plan[0], of_plan[1], of_plan[2] = regions
            of_plan[3] = scratch
            if self.run(self.plan, stream, of_plan, 4, memory):
                return False
        if self.takes_regions:
            of_engine[0], of_engine[1], of_engine[2] = regions
            given = 3
        elif self.takes_boxes:
            of_engine[0] = regions[0]
            given = 1
        for address in arrays:
            of_engine[given] = address
            given += 1
        if self.takes_scratch:
            of_engine[given] = scratch
            given += 1
        return self.run(self.engine, stream, of_engine, given, memory) == 0

    cdef wide_int fill(self, char* structure, wide_int boxes, tuple sizes, tuple maps) except -1:
        """Write the structure for some sizes; return the bytes of scratch memory to clear.

        As ``_cuda/partition.py`` counts tiles and portions.
        """
        cdef Places* at = &self.places
        cdef Work* by = &self.work
        cdef wide_int images = sizes[0]
        cdef wide_int* level
        cdef wide_int tiles = 0, portions = 0, tally = 0
        cdef Py_ssize_t i
        memcpy(structure, <const char*>self.structure, len(self.structure))
        for i in range((len(sizes) - 1) // 2):
            level = <wide_int*>(structure + at.levels) + i * LEVEL_WORDS
            level[LEVEL_ROWS], level[LEVEL_COLUMNS] = sizes[2 * i + 1], sizes[2 * i + 2]
            level[LEVEL_FIRST_TILE] = tiles
            if maps:
                level[LEVEL_ADDRESS] = <wide_int><size_t>maps[i]
            if by.tile_rows:
                tiles += (images * by.maps_of_image * quotient_up(level[LEVEL_ROWS], by.tile_rows)
                          * quotient_up(level[LEVEL_COLUMNS], by.tile_columns))
        set_number(structure, at.images, images)
        set_number(structure, at.boxes, boxes)
        if by.tasks_of_box:
            set_number(structure, at.tasks, boxes * by.tasks_of_box)
        elif by.tile_rows:
            if by.most_portions:
                portions = min(tiles, by.most_portions)
                tally = BYTES_OF_TALLY + (tiles + portions * by.groups) * BYTES_OF_COUNT
                tally = quotient_up(tally, 16) * 16
            set_number(structure, at.tasks, (tiles + portions) * by.groups)
            set_number(structure, at.tiles, tiles)
            set_number(structure, at.portions, portions)
            set_number(structure, at.tally_bytes, tally)
        return tally

    def filled(self, wide_int boxes, tuple sizes, tuple maps=()):
        """Return the structure for some sizes, for tests."""
        cdef unsigned long long memory[WORDS_OF_ARGUMENTS]
        self.fill(<char*>memory, boxes, sizes, maps)
        return (<char*>memory)[:len(self.structure)]

    cdef int run(self, Kernel kernel, size_t stream, size_t* addresses, int given,
                 unsigned long long* memory) noexcept:
        cdef void* arguments[MOST_ADDRESSES + 1]
        cdef int i
        for i in range(given):
            arguments[i] = &addresses[i]
        arguments[given] = memory
        return self.launcher(kernel.function, kernel.blocks, 1, 1, kernel.across, kernel.down, 1,
                             kernel.shared, <void*>stream, arguments, NULL)


cdef enum:
    BYTES_OF_TALLY = 16
    BYTES_OF_COUNT = 4


cdef inline wide_int quotient_up(wide_int number, wide_int by) noexcept:
    return (number + by - 1) // by


cdef Kernel kernel_of(tuple given):
    cdef Kernel kernel
    cdef size_t function
    function, kernel.blocks, kernel.across, kernel.down, kernel.shared = given
    kernel.function = <void*>function
    return kernel


cdef class KeptLaunches:
    """Launches of one function of the engine with the same options, by what grids depend on.

    Parameters
    ----------
    make : callable
        Returns a `CallLaunch` for a kind of arrays, a GPU's number, channels, boxes and the sizes
        of maps, the last two rounded up; or None if such calls take the general path.
    channels_last : bool
        Whether maps are NHWC.
    rounds : bool
        Whether launches are made for rounded sizes of maps.
    """
    cdef object make
    cdef bint channels_last, rounds
    cdef dict kept

    def __init__(self, make, bint channels_last, bint rounds):
        self.make, self.channels_last, self.rounds, self.kept = make, channels_last, rounds, {}

    def prepared(self, kind, int gpu, wide_int boxes, tuple shapes, bint are_nchw=False):
        """Return a `CallLaunch` for maps of such shapes, or None, and their sizes for it.

        `are_nchw` says that the shapes are (N, C, H, W) in any layout, as those of tensors.
        """
        cdef bint are_nhwc = self.channels_last and not are_nchw
        cdef int row = 1 if are_nhwc else 2
        shape = shapes[0]
        cdef list sizes = [shape[0]]
        channels = shape[3 if are_nhwc else 1]
        for shape in shapes:
            sizes.append(shape[row])
            sizes.append(shape[row + 1])
        exact = tuple(sizes)
        key = (kind, gpu, channels, rounded_up(boxes),
               tuple([rounded_up(size) for size in sizes]) if self.rounds else exact)
        found = self.kept.get(key, self)
        if found is self:
            if len(self.kept) >= MOST_KEPT:
                self.kept.clear()
            found = self.kept[key] = self.make(*key)
        return found, exact


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
