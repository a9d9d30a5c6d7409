/* /bin/sh of the test images. Debian's ash drops variables whose names are no identifiers, such as "data-1", and specs
   look for them; other specs compare ash's exact messages. So: ash, but bash where there is such a name. */
#include <ctype.h>
#include <unistd.h>

extern char **environ;

static int is_identifier(const char *name) {
    if (isdigit((unsigned char)*name) || *name == '=') {
        return 0;
    }
    while (*name && *name != '=') {
        if (!isalnum((unsigned char)*name) && *name != '_') {
            return 0;
        }
        name++;
    }
    return 1;
}

int main(int count, char **words) {
    const char *shell = "/bin/busybox";
    (void)count;
    for (char **name = environ; *name; name++) {
        if (!is_identifier(*name)) {
            shell = "/bin/.bash";
        }
    }
    execv(shell, words);
    return 127;
}
