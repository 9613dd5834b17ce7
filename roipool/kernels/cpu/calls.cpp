// Plans and steps of calls, for `_cpu.pyx`: whatever evaluates definitions. Built once.
#include "definition_rows.h"
#include "execute.h"
#include "interface.h"
#include "xla.h"

namespace roipool {

void arrange_described_bins(Request* request, Job* job) { arrange_bins(request, job); }

void take_part_in_call(Execution* execution, int member) { take_part(execution, member); }

Status execute_whole_call(Call* call, void (*start_threads)(Execution*, int)) {
  return execute_call(call, start_threads);
}

void* handler_for_xla(Executor executor) { return xla_handler(executor); }

const DefinitionRow* rows_of_definitions() { return definition_rows; }

int number_of_definitions() { return definition_count; }

}  // namespace roipool
