# named CASE FOLDER: sets $model to the case under the name `model`, by a link in FOLDER. Symbols begin with the name of a model: what cases of one
# name have in common is translated once (HADAL_CODE_CACHE).
named() {
    mkdir -p "$2"
    model=$2/model
    ln -sfn "$(realpath "$1")" "$model"
}
