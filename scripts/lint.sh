#!/usr/bin/env bash
# Runs every linter of the dependency group "lint" over the files that git has.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

ruff check .
ruff format --check .
mypy
cython-lint roipool/_cpu.pyx
mapfile -t scripts < <(git ls-files '*.sh' .ci/run)
shellcheck "${scripts[@]}"
check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml
check-jsonschema --builtin-schema vendor.github-actions .github/actions/*/action.yml
check-jsonschema --builtin-schema vendor.dependabot .github/dependabot.yml

# What the documentation tells others to copy: a workflow of GitHub's, and a job of GitLab's.
examples=$(mktemp -d)
trap 'rm -r "$examples"' EXIT
awk -v folder="$examples" '
  /^```/ { file = $0 == "```yaml" ? folder "/" ++count ".yml" : ""; next }
  file { print > file }
' docs/testing.md
check-jsonschema --builtin-schema vendor.github-workflows "$examples/1.yml"
check-jsonschema --builtin-schema vendor.gitlab-ci --data-transform gitlab-ci "$examples/2.yml"

mapfile -t kernels < <(git ls-files 'roipool/kernels/*.h' 'roipool/kernels/*.cpp' 'roipool/kernels/*.cu')
clang-format --dry-run -Werror "${kernels[@]}"
