"""What is kept between runs in the cache directory: compiled modules, results of long passes."""
