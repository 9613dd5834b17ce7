# For scripts that run Python under sanitizers, and source this. Python itself is not built with
# them: their libraries have to be there before it.
# shellcheck shell=bash

leave_out() {
  echo "sanitizers left out: $1" >&2
  exit 77
}

# Prints where a compiler has libraries: libraries_of COMPILER NAME...
libraries_of() {
  local compiler=$1 name file
  shift
  for name in "$@"; do
    file=$("$compiler" -print-file-name="$name" 2>/dev/null || true)
    [ -e "$file" ] || leave_out "$compiler brings no $name, as GCC does"
    printf '%s ' "$file"
  done
}
