"""A GPU, or any other device with an OpenCL driver: OpenCL C, compiled by the driver."""
