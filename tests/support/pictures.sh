# shellcheck shell=bash
# pictures.sh -- images for test scripts, which source this file. They are those of the fuzz corpus, of each kind that
# the program reads.
#
#   picture KIND FILE     writes one: grey, rgb-1, cmyk, exif, progressive, png-1, png-l, png-p, png-rgb, png-rgba, cut
#   picture_classes       makes d/train and d/val with the classes ant, bee and "big cat", eight and four images each,
#                         and x.json for a small network
picture() { # the first byte of a corpus file belongs to the fuzz target
    tail -c +2 "$ROOT/tests/fuzz/corpus/jpeg/$1" > "$2"
}
picture_classes() {
    local class i kind
    for class in ant bee 'big cat'; do
        mkdir -p "d/train/$class" "d/val/$class"
        for i in 0 1 2 3 4 5 6 7; do
            case $class in ant) kind=rgb-$i ;; bee) kind=png-rgb ;; *) kind=grey ;; esac
            picture $kind "d/train/$class/$i.jpg"
            [ $i -ge 4 ] || picture $kind "d/val/$class/$i.jpg"
        done
    done
    cat > x.json << 'END'
{"model": "mnist_cnn", "dataset": "image_folder", "data_dir": "d", "image_size": 12, "batch_size": 8, "optimizer": "adam",
 "learning_rate": 0.01, "threads": 1, "seed": 3}
END
}
