"""Text-to-image: pictures from captions, in stages that are tasks of their own (Ramesh et al. 2021).

codes    a discrete VAE: a picture becomes a grid of codes, and back
decoder  writes the codes of a picture after the words of its caption
ranker   how well a picture fits a caption, to choose among several
judge    tells what a picture of the corpus shapes shows; it has no part in drawing

The stages of one model lie side by side in a folder, each an ordinary run.
"""
