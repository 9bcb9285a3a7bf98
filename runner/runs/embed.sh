#!/bin/sh
# embed.sh -- prints a C array for each file, and the SHA-256 of the file as base64: what the policy of a page names.
#
#   runner/runs/embed.sh FILE...        report.css -> report_css[], REPORT_CSS_SHA256
set -e
for file; do
    name=$(basename "$file" | tr . _)
    hash=$(sha256sum < "$file" | cut -c 1-64 | sed 's/../\\x&/g')
    printf '#define %s_SHA256 "%s"\n' "$(echo "$name" | tr '[:lower:]' '[:upper:]')" "$(env printf "$hash" | base64)"
    printf 'static const unsigned char %s[] = {' "$name"
    od -An -v -tu1 "$file" | sed 's/[0-9][0-9]*/&,/g'
    echo '};'
done
