# Tensors as the functions of C describe them that DLPack has since 1.3: a part of _cpu.pyx, since
# it needs a C compiler but nothing of the library whose tensors these are. For
# `roipool.torch._launches` and `roipool.torch._fast_path`.

# A DLTensor. Strides are counted in elements.
cdef struct DescribedTensor:
    void* data
    int32_t device_type, device
    int32_t axes
    uint8_t type_code, bits
    uint16_t lanes
    int64_t* shape
    int64_t* strides
    uint64_t byte_offset

ctypedef int (*Describer)(PyObject*, DescribedTensor*) noexcept

# A DLPackExchangeAPI; its other functions make tensors and name the current stream.
cdef struct ExchangeFunctions:
    uint32_t major_version, minor_version
    ExchangeFunctions* earlier
    void* others[3]
    Describer describe

cdef enum:
    DLPACK_MAJOR = 1
    INTEGERS = 0  # codes of types
    FLOATS = 2
    BFLOATS = 4
    MOST_AXES = 4

# A copy of a tensor's description, since another thread may resize the tensor.
cdef struct Seen:
    size_t address
    int type_code, bits
    wide_int sizes[MOST_AXES]
    wide_int strides[MOST_AXES]  # in bytes


cdef class TensorCall:
    """The tensors of a call that kernels read as they are.

    Attributes
    ----------
    channels_last : bool
        Whether maps are stored channels last, and not also channels first.
    kind : tuple of int
        Codes and bits of the types, as in DLPack, and strides in bytes: of maps the type, of boxes
        the type and both strides, of batch indices the type and the stride.
    is_usual : bool
        Whether boxes are corners in a contiguous table with batch indices, of the type that maps
        are computed in.
    device, boxes, columns : int
        Numbers of the device, of the boxes, and of columns of a box.
    shapes : tuple of tuple of int
        Those of the maps, (N, C, H, W).
    maps : tuple of int
        Their addresses, and behind them that of the argmax, if there is one.
    regions : tuple of int
        The addresses of boxes, batch indices and levels; 0 for no levels.
    """
    cdef readonly bint channels_last, is_usual
    cdef readonly tuple kind, shapes, maps, regions
    cdef readonly int device
    cdef readonly wide_int boxes, columns


cdef class TensorReader:
    """Reads the tensors of calls.

    Parameters
    ----------
    kinds : tuple of type
        Plain tensors. The attribute ``__dlpack_c_exchange_api__`` of the first has the functions of
        C; no tensor is read without it.
    device_type : int
        The type of device, as in DLPack, whose tensors are read.
    current_device : callable
        Returns the number of the device whose tensors are read.
    """
    cdef public int device_type  # these two for tests
    cdef public object current_device
    cdef tuple kinds
    cdef object is_negative, offset_of, storage_of
    cdef Describer describe

    def __init__(self, tuple kinds, int device_type, current_device):
        kind = kinds[0]
        self.kinds, self.device_type, self.current_device = kinds, device_type, current_device
        self.is_negative, self.offset_of = kind.is_neg, kind.storage_offset
        self.storage_of = kind.untyped_storage
        capsule = getattr(kind, "__dlpack_c_exchange_api__", None)
        cdef ExchangeFunctions* functions = NULL
        if capsule is not None:
            functions = <ExchangeFunctions*>PyCapsule_GetPointer(capsule, "dlpack_exchange_api")
        while functions != NULL and functions.major_version != DLPACK_MAJOR:
            functions = functions.earlier
        self.describe = NULL
        if functions != NULL:
            self.describe = functions.describe

    def read(self, maps, table, indices=None, levels=None, channels_last=None, argmax=None):
        """Return a `TensorCall`, or None for tensors that are not read.

        Parameters
        ----------
        maps : tuple or list of Tensor
            Maps of one type, with the same images and channels.
        table, indices, levels : Tensor, or None
            The boxes, with their batch indices in the first column or beside them, and the number
            of each box's map.
        channels_last : bool, optional
            Whether maps must be stored channels last, or first.
        argmax : Tensor, optional
            One of the maps' shape and layout.
        """
        cdef TensorCall call = TensorCall.__new__(TensorCall)
        if self.describe == NULL or not (type(maps) is tuple or type(maps) is list) or not maps:
            return None
        call.device = self.current_device()
        if not self.read_maps(call, maps, channels_last, argmax):
            return None
        return call if self.read_boxes(call, table, indices, levels) else None

    cdef bint read_maps(self, TensorCall call, maps, channels_last, argmax) except -1:
        """Read maps in one layout; return whether it was done."""
        cdef Seen first, each
        cdef list shapes = [], addresses = []
        cdef bint are_first = channels_last is not True, are_last = channels_last is not False
        for tensor in maps:
            if not self.see(tensor, 4, call.device, &each):
                return False
            if not shapes:
                first = each
            if each.type_code != first.type_code or each.bits != first.bits:
                return False
            if each.sizes[0] != first.sizes[0] or each.sizes[1] != first.sizes[1]:
                return False
            are_first = are_first and is_stored(&each, False)
            are_last = are_last and is_stored(&each, True)
            shapes.append((each.sizes[0], each.sizes[1], each.sizes[2], each.sizes[3]))
            addresses.append(each.address)
        if not (first.type_code == FLOATS or first.type_code == BFLOATS and first.bits == 16):
            return False
        if argmax is not None:
            if not (self.see(argmax, 4, call.device, &each) and is_integer(&each)):
                return False
            if (each.sizes[0], each.sizes[1], each.sizes[2], each.sizes[3]) != shapes[0]:
                return False
            are_first = are_first and is_stored(&each, False)
            are_last = are_last and is_stored(&each, True)
            addresses.append(each.address)
        call.channels_last = not are_first
        call.shapes, call.maps = tuple(shapes), tuple(addresses)
        call.kind = first.type_code, first.bits
        return are_first or are_last

    cdef bint read_boxes(self, TensorCall call, table, indices, levels) except -1:
        """Read boxes beside maps; return whether it was done."""
        cdef Seen boxes, images, numbers
        if not (self.see(table, 2, call.device, &boxes) and is_number(&boxes)):
            return False
        call.boxes, call.columns = boxes.sizes[0], boxes.sizes[1]
        images, numbers.address = boxes, 0
        if indices is None:
            boxes.address += boxes.strides[1]
            call.columns -= 1
        elif not (self.see(indices, 1, call.device, &images) and is_number(&images)):
            return False
        if levels is not None:
            if not (self.see(levels, 1, call.device, &numbers) and is_integer(&numbers)):
                return False
            if numbers.sizes[0] != call.boxes or numbers.bits != 64 or numbers.strides[0] != 8:
                return False
        cdef int item = boxes.bits // 8
        call.is_usual = (indices is None and call.columns == 4 and boxes.type_code == FLOATS
                         and boxes.bits == max(32, call.kind[1])
                         and boxes.strides[0] == 5 * item and boxes.strides[1] == item)
        call.kind += (boxes.type_code, boxes.bits, boxes.strides[0], boxes.strides[1],
                      images.type_code, images.bits, images.strides[0])
        call.regions = boxes.address, images.address, numbers.address
        return images.sizes[0] == call.boxes

    cdef bint see(self, tensor, int axes, int device, Seen* seen) except -1:
        """Describe a tensor; return whether it has values in memory of the device, as they are."""
        cdef DescribedTensor found
        cdef wide_int extent = 1
        cdef int axis, item
        if type(tensor) not in self.kinds:
            return False
        if self.describe(<PyObject*>tensor, &found):  # it has no memory, or a type of its own
            PyErr_Clear()
            return False
        if found.data == NULL or found.strides == NULL or found.axes != axes:
            return False
        if found.lanes != 1 or found.bits % 8:
            return False
        if found.device_type != self.device_type or found.device != device:
            return False
        item = found.bits // 8
        seen.address = <size_t>found.data + found.byte_offset
        seen.type_code, seen.bits = found.type_code, found.bits
        for axis in range(axes):
            seen.sizes[axis], seen.strides[axis] = found.shape[axis], found.strides[axis] * item
            if seen.sizes[axis] == 0:
                return False
            extent += (seen.sizes[axis] - 1) * found.strides[axis]
        if seen.address % item or self.is_negative(tensor):
            return False
        # A program may free a tensor's storage, or leave it less than the tensor claims.
        extent += self.offset_of(tensor)
        return extent * item <= len(self.storage_of(tensor))


cdef bint is_integer(const Seen* seen) noexcept:
    return seen.type_code == INTEGERS and (seen.bits == 32 or seen.bits == 64)


cdef bint is_number(const Seen* seen) noexcept:
    return (seen.type_code == INTEGERS or seen.type_code == FLOATS) and seen.bits >= 32


# Axes of (N, C, H, W) maps by layout, those with the smallest strides first.
cdef int[2][4] ORDERS = [[3, 2, 1, 0], [1, 3, 2, 0]]


cdef bint is_stored(const Seen* seen, bint channels_last) noexcept:
    """Return whether (N, C, H, W) values lie in a layout."""
    cdef wide_int step = seen.bits // 8
    cdef int at, axis
    for at in range(4):
        axis = ORDERS[channels_last][at]
        if seen.sizes[axis] != 1 and seen.strides[axis] != step:
            return False
        step *= seen.sizes[axis]
    return True
