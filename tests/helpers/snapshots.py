"""What several tests share with tests/cli/test_bad_input.py."""


def snapshot(folder):
    """Every name below a folder, with the bytes of what is a file."""
    return {
        path.relative_to(folder): path.read_bytes() if path.is_file() else None for path in folder.rglob("*")
    }
