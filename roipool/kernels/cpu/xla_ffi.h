// What a handler sees of XLA's foreign function interface, in our own words: the structures that
// XLA passes to a handler, as its documentation of the C interface lays them out, and no more of
// them than `xla.h` and `xla_cuda.h` read. So every build has the handlers, also where jaxlib has
// no wheel. Layouts are the same from JAX 0.6 (interface 0.1) to 0.10 (0.3):
// tests/front_ends/test_jax_ffi.py compares them with the header of the jaxlib that is installed.
#pragma once
#include <stddef.h>
#include <stdint.h>

namespace roipool {
namespace xla {

// Interfaces that the structures below were compared with: from 0.1 to 0.3.
const int interface_major = 0;
const int oldest_minor = 1;
const int newest_minor = 3;

struct Extension {
  size_t bytes;
  int32_t kind;
  Extension* next;
};

// Each structure begins with its size, as whoever filled it in knew it, and extensions.
struct Prefix {
  size_t bytes;
  Extension* extensions;
};

struct InterfaceVersion {
  Prefix prefix;
  int major_number;
  int minor_number;
};

struct Error;  // XLA's

enum ErrorCode : int32_t { invalid_argument = 3, resource_exhausted = 8, internal_error = 13 };

struct ErrorRequest {
  Prefix prefix;
  const char* message;
  int32_t code;
};

// Asks for the stream of a call: on a GPU, CUDA's.
struct StreamRequest {
  Prefix prefix;
  void* context;  // the call's
  void* stream;   // the answer
};

// The functions of XLA; more of them follow.
struct Functions {
  Prefix prefix;
  InterfaceVersion version;
  const void* internal;
  Error* (*create_error)(ErrorRequest*);
  const void* others[3];
  Error* (*get_stream)(StreamRequest*);
};

enum ElementType : int32_t {
  element_int8 = 2,
  element_int16 = 3,
  element_int32 = 4,
  element_int64 = 5,
  element_uint8 = 6,
  element_uint16 = 7,
  element_float16 = 10,
  element_float32 = 11,
  element_float64 = 12,
  element_bfloat16 = 16
};

struct Buffer {
  Prefix prefix;
  int32_t element;
  void* data;
  int64_t rank;
  int64_t* sizes;
};

// Operands, and in the same form results.
struct Buffers {
  Prefix prefix;
  int64_t count;
  int32_t* kinds;
  void** items;  // each a Buffer
};

struct Text {
  const char* start;
  size_t length;
};

struct NumberList {
  int32_t element;
  size_t count;
  void* data;
};

enum AttributeKind : int32_t { attribute_is_list = 1 };

struct AttributeTable {
  Prefix prefix;
  int64_t count;
  int32_t* kinds;
  Text** names;
  void** values;  // by kind; of a list a NumberList
};

enum Stage : int32_t { stage_initialize = 2, stage_execute = 3 };

struct CallFrame {
  Prefix prefix;
  const Functions* functions;  // null where XLA 0.1 asks for metadata
  void* context;
  int32_t stage;
  Buffers operands;
  Buffers results;
  AttributeTable attributes;
};

// XLA asks a handler once for its metadata, by a call with an extension of this kind.
const int32_t extension_is_metadata = 1;

// Trait of a handler whose calls always queue the same operations, which a graph can capture.
const uint32_t fits_command_buffers = 1;

struct Metadata {
  size_t bytes;
  InterfaceVersion version;
  uint32_t traits;
};

struct MetadataExtension {
  Extension base;
  Metadata* metadata;
};

}  // namespace xla
}  // namespace roipool
