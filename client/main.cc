#include "client/cli.h"

int main(int argc, char** argv) { return deltafill::client::RunCommandLine(argc, argv); }
