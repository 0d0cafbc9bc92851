#!/bin/sh
# Unpacks Debian's headless Chromium into a folder, with those of its libraries and fonts that this machine has not, and
# installs nothing: no root rights, and nothing to remove but the folder. Chromium is FOLDER/usr/bin/chromium-headless-shell.
#
#     unpack-chromium.sh FOLDER
set -eu
folder=$(mkdir -p "$1" && cd "$1" && pwd)
# What is not installed of Chromium and all that it needs, and beside it, always, the files that it looks for at its side.
missing() { apt-get --simulate --no-install-recommends install chromium-headless-shell | sed -n 's/^Inst \([^ ]*\).*/\1/p'; }
fetch() {
	names=$(missing)
	# shellcheck disable=SC2046,SC2086 # one word for each package
	test -n "$names" && apt-get --quiet=2 download $(printf '%s\n' chromium-common $names | sort -u)
}

packages=$(mktemp -d)
trap 'rm -rf "$packages"' EXIT
cd "$packages"
# The list of packages may be old or not there: then it is fetched anew, which takes root rights.
fetch || { apt-get --quiet=2 update && fetch; }
for package in *.deb; do dpkg-deb --extract "$package" "$folder"; done

# Without a single font Chromium ends at the first text.
cat >"$folder/fonts.conf" <<FONTS
<fontconfig>
<dir>/usr/share/fonts</dir><dir>$folder/usr/share/fonts</dir><cachedir>$folder/fonts-cache</cachedir>
</fontconfig>
FONTS
libraries=$(find "$folder/usr/lib" "$folder/lib" -name '*.so*' -printf '%h\n' 2>/dev/null | sort -u | paste -sd :)
# The package's own script names the place where the package would be installed.
cat >"$folder/usr/bin/chromium-headless-shell" <<START
#!/bin/sh
export FONTCONFIG_FILE="$folder/fonts.conf" LD_LIBRARY_PATH="$libraries"
exec "$folder/usr/lib/chromium/chromium-headless-shell" "\$@"
START
"$folder/usr/bin/chromium-headless-shell" --version
