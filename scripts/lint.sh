#!/usr/bin/env bash
# Runs every linter of the dependency group "lint" over the files that git has.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

ruff check .
ruff format --check .
mypy
cython-lint roipool/_cpu.pyx roipool/_launches.pxi roipool/_tensors.pxi

# Subjects of commits, since the rule of CONTRIBUTING.md; a shallow clone does not have them.
rule=14d16969a44e3c4d88ac71459a8ac7423a89031a
if git cat-file -e "$rule^{commit}" 2>/dev/null; then
  long=$(git log --no-merges --format=%s "$rule..HEAD" | awk 'length > 72')
  if [ -n "$long" ]; then
    printf 'subjects of commits must be at most 72 characters long:\n%s\n' "$long" >&2
    exit 1
  fi
fi

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
