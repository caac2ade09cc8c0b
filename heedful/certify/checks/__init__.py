"""The checks of a certificate, one file each."""
