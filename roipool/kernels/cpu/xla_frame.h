// What handlers read of a call of XLA's, and how they answer.
#pragma once
#include <string.h>

#include "../config.h"
#include "xla_ffi.h"

namespace roipool {
namespace xla {

inline Error* failed(const CallFrame* frame, ErrorCode code, const char* message) {
  ErrorRequest request;
  memset(&request, 0, sizeof request);
  request.prefix.bytes = sizeof request;
  request.message = message;
  request.code = code;
  return frame->functions->create_error(&request);
}

// XLA asks every handler once for the version of the interface that it was written for: the one
// that XLA has, as far as these structures were compared with it.
inline bool answers_metadata(CallFrame* frame, uint32_t traits) {
  Extension* extension = frame->prefix.extensions;
  if (!extension || extension->kind != extension_is_metadata) return false;
  Metadata* metadata = reinterpret_cast<MetadataExtension*>(extension)->metadata;
  const Functions* functions = frame->functions;
  metadata->version.major_number = interface_major;
  metadata->version.minor_number =
      functions ? minimum<int>(functions->version.minor_number, newest_minor) : oldest_minor;
  metadata->traits = traits;
  return true;
}

// An attribute, or null if it is not a list of numbers of this type.
inline const NumberList* list(const CallFrame* frame, const char* name, ElementType type) {
  const AttributeTable& table = frame->attributes;
  for (int64_t i = 0; i < table.count; ++i) {
    const Text* text = table.names[i];
    if (text->length != strlen(name) || memcmp(text->start, name, text->length)) continue;
    if (table.kinds[i] != attribute_is_list) return nullptr;
    const NumberList* found = static_cast<const NumberList*>(table.values[i]);
    return found->element == type ? found : nullptr;
  }
  return nullptr;
}

// The elements of an attribute, or null if it is not a list of `count` numbers of this type.
template <typename T>
const T* attribute(const CallFrame* frame, const char* name, ElementType type, size_t count) {
  const NumberList* found = list(frame, name, type);
  return found && found->count == count ? static_cast<const T*>(found->data) : nullptr;
}

inline const Buffer& operand(const CallFrame* frame, int64_t number) {
  return *static_cast<const Buffer*>(frame->operands.items[number]);
}

inline const Buffer& result(const CallFrame* frame, int64_t number) {
  return *static_cast<const Buffer*>(frame->results.items[number]);
}

}  // namespace xla
}  // namespace roipool
