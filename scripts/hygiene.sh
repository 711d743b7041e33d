#!/usr/bin/env bash
# Checks the tracked files for what must never stand in them: addresses of package registries, paths of one machine,
# keys, and an import of litellm outside its one adapter. In a tree without git: all files that are not ignored by name.
set -euo pipefail
cd "$(dirname "$0")/.."

if git rev-parse --is-inside-work-tree >/dev/null 2>&1; then
  mapfile -t files < <(git ls-files --cached --others --exclude-standard)
else
  mapfile -t files < <(find . -type f -not -path './.venv/*' -not -path '*/__pycache__/*' -printf '%P\n')
fi
existing=()
for file in "${files[@]}"; do [[ -f $file ]] && existing+=("$file"); done
failed=0

# complain TITLE PATTERN FILE...: fail if the pattern stands in one of the files
complain() {
  local title=$1 pattern=$2 hits
  shift 2
  [[ $# -gt 0 ]] || return 0
  if hits=$(grep -nIE -- "$pattern" "$@"); then
    printf '%s:\n%s\n' "$title" "$(head -n 10 <<<"$hits")"
    failed=1
  fi
}

# A pattern is written so that it does not match itself.
locks=() python=() others=()
for file in "${existing[@]}"; do
  case $file in
    scripts/hygiene.sh) ;;
    *.lock | package-lock.json | */package-lock.json) locks+=("$file") ;;
    *) others+=("$file") ;;
  esac
  [[ $file == *.py && $file != proxy/upstream/litellm/library.py ]] && python+=("$file")
done

complain "a lock file names an address" 'https?://|^--(index|extra-index|find-links|trusted)' "${locks[@]}"
complain "the address of a package registry" 'pypi\.org|pythonhosted\.org|registry\.npmjs|index-url|find-links' "${others[@]}"
complain "a path of one machine" '(^|[^[:alnum:]_.])/(work|farm|root|home|Users)/|/tmp/[a-z]' "${others[@]}"
complain "what looks like a key" '\b(sk-[A-Za-z0-9]{32,}|ghp_[A-Za-z0-9]{30,}|AKIA[A-Z0-9]{16})\b' "${others[@]}"
complain "litellm is imported outside its adapter" '^[[:space:]]*(import|from)[[:space:]]+litellm\b' "${python[@]}"

((failed)) || echo "${#existing[@]} files, nothing found"
exit "$failed"
